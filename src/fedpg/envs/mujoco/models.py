"""One compiled MuJoCo model per agent, from Gymnasium's own XML.

Changing numbers in a compiled model does not update the numbers derived from them. So every change is made before compiling,
or, for masses, followed by MuJoCo's `mj_setConst`.
"""

import functools
import importlib.util
import math
import warnings
from pathlib import Path

import mujoco
import numpy as np

from fedpg.envs.mujoco.options import Knobs
from fedpg.envs.mujoco.tasks import TASKS, Task
from fedpg.errors import UserError, require

FACTORS = ("gravity", "mass", "friction", "limb_length", "gain")
"""The constants that change a model."""


def quiet() -> None:
    """Stops MuJoCo from printing warnings and from writing MUJOCO_LOG.TXT into the current directory.

    Unstable simulations, which it warns of, are reported as events (`fedpg.envs.host.Event`).
    """
    config = mujoco.MjLogConfig.get()
    config.logto_console = config.logto_file = False
    mujoco.MjLogConfig.set(config)


def asset(xml: str) -> Path:
    """The path of a model among Gymnasium's assets, found without importing Gymnasium.

    Raises:
        ImportError: if it is not installed.
    """
    found = importlib.util.find_spec("gymnasium")
    if found is None or found.origin is None:
        raise ImportError("gymnasium holds the MuJoCo models and is not installed")
    return Path(found.origin).parent / "envs" / "mujoco" / "assets" / xml


@functools.lru_cache(maxsize=8192)
def build(
    task: str,
    gravity: float = 1.0,
    mass: float = 1.0,
    friction: float = 1.0,
    limb_length: float = 1.0,
    gain: float = 1.0,
    textures: bool = False,
) -> mujoco.MjModel:
    """The compiled model of `task` with these factors; the same object for the same arguments. Do not change it.

    With every factor 1 it is Gymnasium's, number for number. Textures are for rendering only and take 97% of a model's
    memory, so they are left blank unless asked for.
    """
    require(all(0.0 < x < math.inf for x in (gravity, mass, friction, limb_length, gain)), "factors must be positive and finite")
    spec = mujoco.MjSpec.from_file(str(asset(TASKS[task].xml)))
    spec.option.gravity = spec.option.gravity * gravity
    for geom in spec.geoms:  # a contact has the larger friction of its two geoms: the ground's is scaled as well
        geom.friction[0] *= friction
    for actuator in spec.actuators:
        actuator.gear = actuator.gear * gain
    if limb_length != 1.0:
        _stretch(spec, limb_length)
    if not textures:
        for texture in spec.textures:
            texture.width = texture.height = 1
    model = _compile(spec)
    if mass != 1.0:
        model.body_mass *= mass
        model.body_inertia *= mass
        mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


def build_all(task: Task, knobs: Knobs) -> list[mujoco.MjModel]:
    """The models of environments with these constants, (environments,) each."""
    quiet()
    built = []
    for factors in np.stack([getattr(knobs, name) for name in FACTORS], 1).astype(float).tolist():
        try:
            built.append(build(task.name, *factors))
        except (ValueError, mujoco.FatalError) as error:
            given = ", ".join(f"{name} {value:g}" for name, value in zip(FACTORS, factors, strict=True))
            reason = " ".join(str(error).split())
            raise UserError(f"MuJoCo cannot make a {task.name} with {given}: {reason}; less heterogeneity may help") from error
    return built


def _compile(spec: mujoco.MjSpec) -> mujoco.MjModel:
    with warnings.catch_warnings():  # half_cheetah.xml sets its total mass in a way that MuJoCo 4 deprecates
        warnings.simplefilter("ignore")
        return spec.compile()


def _stretch(spec: mujoco.MjSpec, factor: float) -> None:
    """Lengthens the limbs: everything below the torso grows away from the joint that hangs it there; radii stay.

    The torso is raised so that the lowest point keeps its height: longer legs would otherwise start in the ground.
    """
    total = spec.compiler.settotalmass
    spec.compiler.settotalmass = -1
    before = _compile(spec)
    torso = spec.worldbody.first_body()
    for limb in spec.bodies:
        if limb.name in (spec.worldbody.name, torso.name):
            continue
        if limb.parent.name != torso.name:
            limb.pos = limb.pos * factor
        for joint in limb.joints:
            joint.pos = joint.pos * factor
        for geom in limb.geoms:
            if np.isnan(geom.fromto[0]):
                geom.pos = geom.pos * factor
                geom.size[1] *= factor
            else:
                geom.fromto = geom.fromto * factor
    after = _compile(spec)
    if total > 0:  # the total that leaves every limb the density it had
        spec.compiler.settotalmass = total * after.body_mass.sum() / before.body_mass.sum()
    if before.geom_contype[1:].any():  # a swimmer has no ground to touch
        torso.pos[2] += lowest(before) - lowest(after)


def lowest(model: mujoco.MjModel) -> float:
    """Height of the lowest point of the robot at rest."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    upright = np.abs(data.geom_xmat.reshape(-1, 3, 3)[1:, 2, 2])
    return float(np.min(data.geom_xpos[1:, 2] - upright * model.geom_size[1:, 1] - model.geom_size[1:, 0]))

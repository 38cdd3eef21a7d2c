"""The batch backend is Gymnasium's v5 tasks, step by step, also when the agents' constants are others."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import gymnasium
import jax
import mujoco
import numpy as np
import pytest

from fedpg.envs.mujoco import TASKS
from fedpg.envs.mujoco.models import asset
from fedpg.envs.mujoco.tasks import start
from helpers.robots import largest_difference, peer, place, ready, session, starts

pytestmark = pytest.mark.filterwarnings("ignore")  # MuJoCo on half_cheetah.xml, Gymnasium on stepping past the end
ENDS = {"halfcheetah": 0, "walker2d": 5, "hopper": 5, "swimmer": 0}


@pytest.mark.parametrize("name", TASKS)
def test_equals_gymnasium(name: str) -> None:
    """300 steps through many episodes: to the bit, apart from the order in which a reward is summed."""
    worst, ends = largest_difference(ready(name)[0], peer(name), name)
    assert worst < 1e-12
    assert ends >= ENDS[name]


@pytest.mark.parametrize("name", TASKS)
def test_spaces_and_time_are_gymnasiums(name: str) -> None:
    task, env = TASKS[name], peer(name)
    assert task.observation_space.shape == env.observation_space.shape
    assert task.action_space.shape == env.action_space.shape
    assert (env.action_space.low == task.action_space.low).all()
    assert (env.action_space.high == task.action_space.high).all()
    assert (task.nq, task.nv, task.nu) == (env.model.nq, env.model.nv, env.model.nu)
    assert (task.dt, task.start_range) == (pytest.approx(env.dt), env._reset_noise_scale)
    assert env.model.actuator_ctrllimited.all()


@pytest.mark.parametrize("name", TASKS)
def test_equals_gymnasium_with_an_edited_model(name: str) -> None:
    """Gravity, mass, friction and motors as a Gymnasium user would change them: the fields, then `mj_setConst`."""
    factors = {"gravity": 1.25, "mass": 1.5, "friction": 0.75, "gain": 1.375}  # exact in float32
    model = mujoco.MjModel.from_xml_path(str(asset(TASKS[name].xml)))
    model.opt.gravity *= factors["gravity"]
    model.body_mass *= factors["mass"]
    model.body_inertia *= factors["mass"]
    model.geom_friction[:, 0] *= factors["friction"]
    model.actuator_gear *= factors["gain"]
    mujoco.mj_setConst(model, mujoco.MjData(model))
    worst, ends = largest_difference(ready(name, **factors)[0], peer(name, model), name)
    assert worst < 1e-6
    assert ends >= ENDS[name]
    assert largest_difference(ready(name)[0], peer(name, model), name, 5)[0] > 1e-3


def stretched_xml(name: str, factor: float, folder: Path) -> mujoco.MjModel:
    """A legged task with longer legs, written by hand: thigh, leg and foot grow by `factor`, 0.95 m of them upright."""
    tree = ElementTree.parse(asset(TASKS[name].xml))
    for body in tree.iter("body"):
        if body.get("name") == "torso":
            body.set("pos", f"0 0 {1.25 + 0.95 * (factor - 1)}")
            continue
        hangs_on_torso = body.get("name", "").startswith("thigh")
        for part in [*([] if hangs_on_torso else [body]), *body.findall("joint"), *body.findall("geom")]:
            if part.get("pos"):
                part.set("pos", " ".join(repr(factor * float(x)) for x in part.get("pos").split()))
        for geom in body.findall("geom"):
            radius, half = map(float, geom.get("size").split())
            geom.set("size", f"{radius} {half * factor!r}")
    tree.write(folder / "long.xml")
    return mujoco.MjModel.from_xml_path(str(folder / "long.xml"))


@pytest.mark.parametrize("factor", [0.75, 1.25])
@pytest.mark.parametrize("name", ["walker2d", "hopper"])
def test_equals_gymnasium_with_other_legs(name: str, factor: float, tmp_path: Path) -> None:
    """Against an XML with the legs changed by hand. Rounding of the XML's numbers is all that may differ."""
    worst, ends = largest_difference(ready(name, limb_length=factor)[0], peer(name, stretched_xml(name, factor, tmp_path)), name)
    assert worst < 1e-6
    assert ends >= ENDS[name]


def first_steps(name: str, actions: np.ndarray, **options: Any) -> tuple[np.ndarray, np.ndarray, list[dict]]:
    """Observations and rewards of agent 0, and what Gymnasium says when it gets action + offset."""
    made, _ = ready(name, **options)
    begin = starts(name, 1)
    ours, env = session(made, [0], begin), peer(name)
    place(env, begin[0])
    rows = []
    for action in actions:
        after = ours.step(action[None])
        observation, _, _, _, info = env.step(action + options.get("action_offset", 0.0))
        rows.append((after.observation[0] - observation, after.reward[0], info))
    return np.array([r[0] for r in rows]), np.array([r[1] for r in rows]), [r[2] for r in rows]


@pytest.mark.parametrize("name", TASKS)
def test_offset_target_and_direction(name: str) -> None:
    """The reward by hand from Gymnasium's own terms; the physics sees the offset and nothing else."""
    task = TASKS[name]
    actions = np.random.default_rng(2).uniform(-1, 1, (5, task.nu))
    for options in ({"action_offset": 0.5}, {"direction": -1.0}, {"target_speed": 0.75}, {"target_speed": 0.5, "direction": -1.0}):
        difference, rewards, infos = first_steps(name, actions, **options)
        assert np.abs(difference).max() < 1e-12
        for action, reward, info in zip(actions, rewards, infos, strict=True):
            speed = options.get("direction", 1.0) * info["x_velocity"]
            forward = -abs(speed - options["target_speed"]) if "target_speed" in options else speed
            cost = task.control_cost * np.sum((action + options.get("action_offset", 0.0)) ** 2)
            assert reward == pytest.approx(forward + task.alive_reward - cost, abs=1e-12)
            if options == {"action_offset": 0.5}:
                assert reward == pytest.approx(info["reward_forward"] + info["reward_ctrl"] + info.get("reward_survive", 0.0), abs=1e-12)


@pytest.mark.parametrize("name", TASKS)
def test_starts_are_distributed_as_gymnasiums(name: str) -> None:
    """Positions uniform in +-start_range, velocities uniform or normal: extremes and standard deviations of 1000 starts."""
    task, env = TASKS[name], gymnasium.make(TASKS[name].gymnasium).unwrapped
    theirs = []
    for seed in range(1000):
        env.reset(seed=seed)
        theirs.append(np.concatenate([env.data.qpos - env.init_qpos, env.data.qvel - env.init_qvel]))
    ours = np.asarray(jax.vmap(lambda key: start(task, key, task.start_range))(jax.random.split(jax.random.key(0), 1000)))
    np.testing.assert_allclose(ours.std(0), np.std(theirs, axis=0), rtol=0.12)
    np.testing.assert_allclose(ours.mean(0), 0.0, atol=0.12 * task.start_range)
    uniform = slice(0, task.nq if task.normal_start else None)
    assert np.abs(ours[:, uniform]).max() <= task.start_range
    assert (np.abs(ours[:, uniform]).max(0) > 0.98 * task.start_range).all()
    assert (np.abs(ours[:, task.nq :]).max() > 2.5 * task.start_range) == task.normal_start

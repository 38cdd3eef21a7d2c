"""Models: Gymnasium's number for number, and right in every derived constant when an agent's body is another."""

from __future__ import annotations

import dataclasses
from typing import Any

import mujoco
import numpy as np
import pytest

from fedpg.envs.mujoco import TASKS
from fedpg.envs.mujoco.models import FACTORS, asset, build, build_all, lowest
from fedpg.envs.mujoco.options import NAMES, Knobs
from fedpg.errors import UserError

LEGGED = ["halfcheetah", "walker2d", "hopper"]

pytestmark = pytest.mark.filterwarnings("ignore")  # MuJoCo on half_cheetah.xml


def numbers(model: mujoco.MjModel) -> dict[str, np.ndarray]:
    """Everything numeric in a model, by name."""
    found = {}
    for prefix, part in (("", model), ("opt.", model.opt), ("stat.", model.stat)):
        for name in dir(part):
            value = None if name.startswith("_") else getattr(part, name)
            if isinstance(value, (np.ndarray, int, float)):
                found[prefix + name] = np.array(value)
    return found


def changed(a: mujoco.MjModel, b: mujoco.MjModel) -> set[str]:
    ours, theirs = numbers(a), numbers(b)
    assert len(ours) > 500
    return {name for name in ours if not np.array_equal(ours[name], theirs[name])}


def site(model: mujoco.MjModel, angles: Any = 0.0) -> mujoco.MjData:
    """Where everything is when the driven joints are at `angles`."""
    data = mujoco.MjData(model)
    data.qpos[-model.nu :] += angles
    mujoco.mj_kinematics(model, data)
    return data


@pytest.mark.parametrize("name", TASKS)
def test_nominal_model_is_gymnasiums(name: str) -> None:
    """Every array; without textures, every array that is not about looks."""
    theirs = mujoco.MjModel.from_xml_path(str(asset(TASKS[name].xml)))
    assert changed(build(name, textures=True), theirs) == set()
    assert all("tex" in field or field == "nbuffer" for field in changed(build(name), theirs))


@pytest.mark.parametrize("name", TASKS)
def test_doubled_mass(name: str) -> None:
    """Masses and inertias double, and what derives from them follows; the joints' armature is no mass and stays."""
    one, two = build(name), build(name, mass=2.0)
    for field in ("body_mass", "body_inertia", "body_subtreemass"):
        np.testing.assert_array_equal(getattr(two, field), 2.0 * getattr(one, field))
    moving = one.body_mass > 0
    assert (two.body_invweight0[moving] < 0.99 * one.body_invweight0[moving]).all()
    assert (two.dof_invweight0 < one.dof_invweight0).all()
    np.testing.assert_array_equal(two.dof_armature, one.dof_armature)
    theirs = mujoco.MjModel.from_xml_path(str(asset(TASKS[name].xml)))
    theirs.body_mass *= 2.0
    theirs.body_inertia *= 2.0
    mujoco.mj_setConst(theirs, mujoco.MjData(theirs))
    assert changed(build(name, mass=2.0, textures=True), theirs) == set()


@pytest.mark.parametrize("name", TASKS)
def test_gravity_friction_and_gain_change_only_themselves(name: str) -> None:
    one = build(name)
    heavy, slippery, strong = build(name, gravity=1.5), build(name, friction=0.5), build(name, gain=2.0)
    assert changed(heavy, one) == {"opt.gravity"}
    np.testing.assert_array_equal(heavy.opt.gravity, [0.0, 0.0, -9.81 * 1.5])
    assert changed(slippery, one) == {"geom_friction"}
    np.testing.assert_array_equal(slippery.geom_friction, one.geom_friction * [0.5, 1.0, 1.0])
    assert changed(strong, one) == {"actuator_gear", "actuator_acc0"}
    np.testing.assert_array_equal(strong.actuator_gear, 2.0 * one.actuator_gear)


def test_friction_reaches_the_contact() -> None:
    """A contact takes the larger friction of two geoms: halving must halve what the solver sees."""
    seen = []
    for factor in (1.0, 0.5):
        model = build("halfcheetah", friction=factor)
        data = mujoco.MjData(model)
        data.qpos[1] = -0.1
        mujoco.mj_forward(model, data)
        assert data.ncon > 0
        seen.append(data.contact.friction[:, :2])
    np.testing.assert_array_equal(seen[1], 0.5 * seen[0])


@pytest.mark.parametrize("factor", [0.5, 1.3])
@pytest.mark.parametrize("name", TASKS)
def test_limbs_grow_and_stay_connected(name: str, factor: float) -> None:
    """In any pose, every distance between joints of a limb grows by the factor, and capsules still meet at the joints."""
    one, other = build(name), build(name, limb_length=factor)
    for angles in (0.0, np.linspace(-0.4, 0.3, one.nu)):
        a, b = site(one, angles), site(other, angles)
        for joint in range(one.njnt - one.nu, one.njnt):  # a driven joint's anchor from the joint its limb hangs on
            parent = one.body_parentid[one.jnt_bodyid[joint]]
            if one.body_parentid[parent] == 0:
                np.testing.assert_allclose(b.xanchor[joint] - b.xpos[parent], a.xanchor[joint] - a.xpos[parent], atol=1e-12)
                continue
            above = one.body_jntadr[parent]
            np.testing.assert_allclose(b.xanchor[joint] - b.xanchor[above], factor * (a.xanchor[joint] - a.xanchor[above]), atol=1e-12)
        limbs = np.flatnonzero(one.body_parentid[one.geom_bodyid] > 0)
        anchor = one.body_jntadr[one.geom_bodyid[limbs]]
        np.testing.assert_allclose(  # the middle of a limb is as far along it as before
            b.geom_xpos[limbs] - b.xanchor[anchor], factor * (a.geom_xpos[limbs] - a.xanchor[anchor]), atol=1e-12
        )
    np.testing.assert_allclose(other.geom_size[limbs, 1], factor * one.geom_size[limbs, 1])
    np.testing.assert_array_equal(other.geom_size[:, 0], one.geom_size[:, 0])
    np.testing.assert_array_equal(other.qpos0, one.qpos0)


@pytest.mark.parametrize("factor", [0.5, 1.3])
@pytest.mark.parametrize("name", LEGGED)
def test_legs_reach_further_and_start_above_the_ground(name: str, factor: float) -> None:
    """The torso starts higher by what the legs have grown; the lowest point stays where it was."""
    one, other = build(name), build(name, limb_length=factor)
    assert lowest(other) == pytest.approx(lowest(one), abs=1e-12)
    rise = site(other).xpos[1, 2] - site(one).xpos[1, 2]
    assert rise * (factor - 1.0) > 0.05 * (factor - 1.0) ** 2


@pytest.mark.parametrize("name", TASKS)
def test_limbs_keep_their_density(name: str) -> None:
    """Mass follows from geometry: half_cheetah.xml's fixed total must not make longer-legged cheetahs lighter-bodied."""
    one, other = build(name), build(name, limb_length=1.5)
    np.testing.assert_allclose(other.body_mass[1], one.body_mass[1], rtol=1e-12)  # the torso

    def volumes(model: mujoco.MjModel) -> np.ndarray:
        radius, half = model.geom_size[1:, 0], model.geom_size[1:, 1]
        each = np.pi * radius**2 * (2 * half + 4 / 3 * radius)
        return np.bincount(model.geom_bodyid[1:], each, model.nbody)[1:]

    np.testing.assert_allclose(other.body_mass[1:] / volumes(other), one.body_mass[1:] / volumes(one), rtol=1e-9)
    assert (other.body_mass[2:] > 1.2 * one.body_mass[2:]).all()
    assert (other.body_inertia[2:].max(1) > 1.5 * one.body_inertia[2:].max(1)).all()


def test_the_same_factors_are_the_same_model() -> None:
    assert build("hopper", 1.0, 2.0) is build("hopper", 1.0, 2.0)
    assert build("hopper", 1.0, 2.0) is not build("hopper", 1.0, 2.5)


def test_impossible_models_are_user_errors() -> None:
    """However large the heterogeneity, what cannot be built is said in one line."""
    knobs = Knobs(**{name: np.ones(2) for name in NAMES})
    for bad in (np.inf, 0.0, np.nan):
        for name in FACTORS:
            with pytest.raises(UserError, match=rf"MuJoCo cannot make a hopper with .*{name} (inf|0|nan).*less heterogeneity") as error:
                build_all(TASKS["hopper"], dataclasses.replace(knobs, **{name: np.array([1.0, bad])}))
            assert "\n" not in str(error.value)

"""What `heterogeneity` does to the agents of a MuJoCo task, and what a user may set."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest

from fedpg.envs.mujoco import TASKS, Knobs, MujocoOptions, knobs
from fedpg.envs.mujoco.options import NAMES, PRESETS, SPREAD
from fedpg.errors import UserError

AGENTS = 5
CHEETAH = TASKS["halfcheetah"]


def made(heterogeneity: float = 1.0, agents: int = AGENTS, seed: int = 0, task: Any = CHEETAH, **options: Any) -> Knobs:
    values = knobs(jax.random.key(seed), agents, heterogeneity, MujocoOptions(**options), task)
    assert all(value.shape == (agents,) for value in jax.tree.leaves(values))
    return jax.tree.map(np.asarray, values)


def differing(values: Knobs) -> set[str]:
    return {name for name in NAMES if len(set(getattr(values, name).tolist())) > 1}


@pytest.mark.parametrize("vary", [*PRESETS, *NAMES])
@pytest.mark.parametrize("name", TASKS)
def test_presets_spread_what_they_say(name: str, vary: str) -> None:
    """Nothing at 0, exactly the named knobs at 1 and beyond; whatever is not spread is the task's own."""
    named = set(PRESETS.get(vary, (vary,)))
    nominal = made(0.0, task=TASKS[name], vary=vary)
    assert differing(nominal) == set()
    for name_of, value in vars(nominal).items():
        default = getattr(MujocoOptions(), name_of)
        expected = {"start_range": TASKS[name].start_range}.get(name_of, default)
        if name_of == "target_speed" and name_of in named:
            expected = TASKS[name].speed
        np.testing.assert_array_equal(value, np.float32(expected))
    for h in (0.5, 1.0, 4.0):
        values = made(h, task=TASKS[name], vary=vary)
        assert differing(values) == named
        assert all(np.isfinite(getattr(values, knob)).all() for knob in named)


def test_the_default_is_the_papers() -> None:
    """Start ranges within a factor 2^h of Gymnasium's."""
    np.testing.assert_allclose(sorted(made(0.5).start_range), 0.1 * 2.0 ** np.linspace(-0.5, 0.5, AGENTS), rtol=1e-6)
    assert differing(made(0.5)) == {"start_range"}


def test_how_far_each_knob_is_spread() -> None:
    """The table `SPREAD`, at h = 1 and 2."""
    every = "+".join(SPREAD)
    for h in (1.0, 2.0):
        values = made(h, vary=every)
        place = h * np.linspace(-1.0, 1.0, AGENTS)
        for name in ("gravity", "mass", "friction", "limb_length", "gain"):
            np.testing.assert_allclose(np.sort(getattr(values, name)), SPREAD[name] ** place, rtol=1e-5)
        np.testing.assert_allclose(np.sort(values.action_offset), 0.2 * place, atol=1e-6)
        np.testing.assert_allclose(np.sort(values.target_speed), CHEETAH.speed * (1 + place), atol=1e-6)
        np.testing.assert_allclose(np.sort(values.direction), 1.0 + place - h, atol=1e-6)
    assert made(1.0, vary="conflict").direction.min() == -1.0
    assert set(SPREAD) == set(NAMES)


def test_knobs_are_dealt_in_independent_orders() -> None:
    values = made(vary="all")
    orders = {tuple(np.argsort(getattr(values, name)).tolist()) for name in PRESETS["all"]}
    assert len(orders) > 4
    assert (made(vary="all").mass == values.mass).all()
    assert (made(vary="all", seed=1).mass != values.mass).any()


def test_combinations() -> None:
    assert differing(made(vary="gravity+mass")) == {"gravity", "mass"}
    assert differing(made(vary="conflict + physics")) == {"direction", "gravity", "mass", "friction"}


def test_lists_and_numbers() -> None:
    """A list is taken as it is; a number is what is spread."""
    listed = (0.9, 1.0, 1.1, 1.2, 1.3)
    values = made(2.0, vary="physics", gravity=listed, mass=3.0, gain=2.0)
    np.testing.assert_allclose(values.gravity, listed)
    np.testing.assert_allclose(np.median(values.mass), 3.0, rtol=1e-6)
    assert differing(values) == {"gravity", "mass", "friction"}
    np.testing.assert_array_equal(values.gain, 2.0)
    np.testing.assert_allclose(np.median(made(1.0, vary="speed", target_speed=5.0).target_speed), 5.0)
    np.testing.assert_array_equal(made(0.0, target_speed=5.0).target_speed, 5.0)
    np.testing.assert_allclose(made(vary="conflict", direction=-1.0).direction.max(), 1.0)


@pytest.mark.parametrize("vary", PRESETS)
def test_one_agent_alone_is_the_nominal_one(vary: str) -> None:
    for one, nominal in zip(*map(jax.tree.leaves, (made(3.0, 1, vary=vary), made(0.0, 1, vary=vary))), strict=True):
        np.testing.assert_array_equal(one, nominal)


@pytest.mark.parametrize("name", TASKS)
def test_no_start_is_spread_beyond_the_widest(name: str) -> None:
    """Spread starts stop where episodes would begin fallen; a start that the user sets wider stays."""
    task = TASKS[name]
    assert made(9.0, task=task).start_range.max() == np.float32(task.widest_start)
    assert made(9.0, task=task, start_range=2 * task.widest_start).start_range.max() == np.float32(2 * task.widest_start)
    assert made(0.0, task=task, start_range=2 * task.widest_start).start_range.max() == np.float32(2 * task.widest_start)


def test_knobs_are_traced() -> None:
    """Under jit and vmap over seeds, the same numbers."""
    keys = jax.random.split(jax.random.key(0), 3)
    options = MujocoOptions(vary="+".join(SPREAD))
    seeds = jax.jit(jax.vmap(lambda key: knobs(key, AGENTS, 1.0, options, CHEETAH)))(keys)
    one = knobs(keys[1], AGENTS, 1.0, options, CHEETAH)
    for a, b in zip(jax.tree.leaves(seeds), jax.tree.leaves(one), strict=True):
        np.testing.assert_allclose(a[1], b, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vary": "gravty"}, "unknown vary 'gravty': did you mean 'gravity'"),
        ({"vary": "mass+"}, "unknown vary ''"),
        ({"mass": (1.0, 2.0)}, "mass lists 2 values for 5 agents"),
        ({"gravity": 0.0}, "gravity must be positive and finite"),
        ({"friction": -1.0}, "friction must be positive and finite"),
        ({"limb_length": math.inf}, "limb_length must be positive and finite"),
        ({"gain": math.nan}, "gain must be positive and finite"),
        ({"start_range": 0.0}, "start_range must be positive and finite"),
        ({"action_offset": math.inf}, "action_offset must be finite"),
        ({"direction": math.nan}, "direction must be finite"),
        ({"target_speed": math.nan}, "target_speed must be a number"),
        ({"target_speed": -math.inf}, "target_speed must be a number"),
    ],
)
def test_mistakes_are_user_errors(options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        made(**options)

"""What each baseline remembers and predicts, by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs import Box
from fedpg.envs.cartpole import ENVIRONMENT as CARTPOLE
from fedpg.envs.tabular import environment
from fedpg.errors import UserError
from fedpg.gradients import baselines
from fedpg.gradients.baselines import DECAY
from fedpg.gradients.rollout import Trajectory
from helpers.environments import POINT

TINY = environment("tiny", 3, 2)


def visits(states: list[list[int]], mask: list[list[float]]) -> Trajectory:
    """A batch of trajectories through given states."""
    mask = np.array(mask)
    return Trajectory(np.array(states), np.zeros(mask.shape, int), np.zeros(mask.shape), mask)


def test_none_is_zero() -> None:
    baseline = baselines.make("none", CARTPOLE, 3)
    tau = visits([[0, 1, 2]], [[1.0, 1.0, 1.0]])
    state = baseline.update(baseline.init(), tau, jnp.ones((1, 3)))
    np.testing.assert_array_equal(baseline.predict(state, jax.tree.map(lambda x: x[0], tau)), [0, 0, 0])


def test_time_is_the_decayed_mean_at_each_step() -> None:
    """Executed steps only; older batches count DECAY as much; before any evidence it says 0."""
    baseline = baselines.make("time", TINY, 3)
    tau = visits([[0, 0, 0], [1, 1, 1]], [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    one = jax.tree.map(lambda x: x[0], tau)
    state = baseline.init()
    np.testing.assert_array_equal(baseline.predict(state, one), [0, 0, 0])
    state = baseline.update(state, tau, jnp.array([[2.0, 4.0, 77.0], [6.0, 77.0, 77.0]]))
    np.testing.assert_allclose(baseline.predict(state, one), [4.0, 4.0, 0.0])
    state = baseline.update(state, tau, jnp.array([[12.0, 8.0, 77.0], [14.0, 77.0, 77.0]]))
    expected = [(DECAY * 8 + 26) / (DECAY * 2 + 2), (DECAY * 4 + 8) / (DECAY + 1), 0.0]
    np.testing.assert_allclose(baseline.predict(state, one), expected, rtol=1e-6)


def test_value_is_the_decayed_mean_in_each_state() -> None:
    """Means per state over all executed visits, whatever the time; a state never seen again keeps its mean."""
    baseline = baselines.make("value", TINY, 3)
    tau = visits([[0, 1, 0], [1, 1, 0]], [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    state = baseline.update(baseline.init(), tau, jnp.array([[1.0, 2.0, 5.0], [4.0, 99.0, 99.0]]))
    asked = Trajectory(np.array([0, 1, 2]), np.zeros(3, int), np.zeros(3), np.ones(3))
    np.testing.assert_allclose(baseline.predict(state, asked), [3.0, 3.0, 0.0])
    state = baseline.update(state, visits([[0, 0, 0]], [[1.0, 1.0, 0.0]]), jnp.array([[10.0, 20.0, 99.0]]))
    np.testing.assert_allclose(baseline.predict(state, asked), [(DECAY * 6 + 30) / (DECAY * 2 + 2), 3.0, 0.0], rtol=1e-6)


@pytest.mark.parametrize("kind", ["box", "discrete"])
def test_linear_recovers_a_linear_function(kind: str) -> None:
    """Targets linear in [s, s^2, t, t^2, t^3, 1] (one-hot s if discrete) are fitted to a few percent of their spread."""
    batch, horizon = 8, 200
    rng, t = np.random.default_rng(0), np.arange(horizon) / 100.0
    if kind == "box":
        space, s = POINT, rng.normal(size=(batch, horizon, 3))
        target = s @ [1.0, -2.0, 0.5] + s**2 @ [0.3, 0.0, -1.0] + 2.0 * t - t**3 + 4.0
    else:
        space, s = TINY, rng.integers(0, 3, (batch, horizon))
        target = np.array([5.0, -1.0, 2.0])[s] + 2.0 * t - t**3
    mask = np.ones((batch, horizon))
    mask[0, 50:] = 0.0
    tau = Trajectory(s, np.zeros((batch, horizon), int), np.zeros((batch, horizon)), mask)
    baseline = baselines.make("linear", space, horizon)
    state, update = jax.jit(baseline.init)(), jax.jit(baseline.update)
    for _ in range(10):
        state = update(state, tau, np.where(mask > 0, target, 1e3))  # what was not executed is not looked at
    error = jax.jit(jax.vmap(baseline.predict, (None, 0)))(state, tau) - target
    assert np.abs(error[1:]).max() < 0.03 * target.std()


def test_linear_with_no_evidence_is_finite() -> None:
    """One trajectory of one step does not make the normal equations singular."""
    baseline = baselines.make("linear", POINT, 4)
    tau = Trajectory(np.ones((1, 4, 3)), np.zeros((1, 4, 2)), np.zeros((1, 4)), np.array([[1.0, 0.0, 0.0, 0.0]]))

    @jax.jit
    def fit_and_predict(tau: Trajectory) -> jax.Array:
        state = baseline.update(baseline.init(), tau, jnp.full((1, 4), 2.0))
        return jax.vmap(baseline.predict, (None, 0))(state, tau)[0]

    predicted = fit_and_predict(tau)
    assert np.isfinite(predicted).all()
    np.testing.assert_allclose(predicted[0], 2.0, rtol=1e-2)


def test_bad_names_are_user_errors() -> None:
    with pytest.raises(UserError, match="did you mean 'linear'"):
        baselines.make("linaer", TINY, 3)
    with pytest.raises(UserError, match="cartpole has none: use 'linear'"):
        baselines.make("value", CARTPOLE, 3)


def test_a_fit_that_needs_too_much_memory_is_refused_with_a_proposal() -> None:
    wide = POINT._replace(observation_space=Box((20_000,)))
    with pytest.raises(UserError, match=r"linear baseline of 40004 features needs 25.6 GB for every agent: give --baseline time"):
        baselines.make("linear", wide, 4)
    assert baselines.make("time", wide, 4)

"""CartPole is Gymnasium's CartPole-v1, step by step, also with other constants."""

from __future__ import annotations

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs.cartpole import ENVIRONMENT, WIDEST_START, CartPole, cartpoles

STEPS = 500
CONSTANTS = [
    {},
    {"masspole": 0.6},
    {"masscart": 2.5, "length": 1.3},
    {"gravity": 3.7, "force_mag": 17.0},
    {"masscart": 0.4, "masspole": 0.3, "length": 0.2, "gravity": 15.0, "force_mag": 6.0, "tau": 0.01},
]

pytestmark = pytest.mark.filterwarnings("ignore")  # Gymnasium warns when stepped past the end


def peer(constants: dict[str, float]) -> gymnasium.Env:
    """Gymnasium's environment with these constants; it stores derived ones, so they are set by hand."""
    env = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    for name, value in constants.items():
        assert hasattr(env, name)
        setattr(env, name, value)
    env.total_mass = env.masspole + env.masscart
    env.polemass_length = env.masspole * env.length
    return env


def ours(constants: dict[str, float]) -> CartPole:
    agents = cartpoles(jax.random.key(0), 1, 0.0, CartPole(**constants))
    return jax.tree.map(lambda x: x[0], agents)


@pytest.mark.parametrize("constants", CONSTANTS, ids=str)
def test_equals_gymnasium_from_every_state(constants: dict[str, float]) -> None:
    """float32: 500 random steps, both started from the same state at each; states within 1e-5, ends and rewards equal."""
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (STEPS, 4)) * [2.6, 3.0, 0.25, 3.0]
    actions = rng.integers(0, 2, STEPS)
    env, expected, ends = peer(constants), [], []
    for state, action in zip(states, actions, strict=True):
        env.state, env.steps_beyond_terminated = tuple(state), None
        observation, reward, terminated, truncated, _ = env.step(action)
        assert (reward, truncated) == (1.0, False)
        expected.append(observation)
        ends.append(terminated)
    step = jax.jit(jax.vmap(ENVIRONMENT.step, (None, 0, 0, None)))
    after = step(jax.random.key(0), jnp.asarray(states, jnp.float32), jnp.asarray(actions), ours(constants))
    assert after.observation.dtype == jnp.float32
    np.testing.assert_allclose(after.observation, np.array(expected), atol=1e-5, rtol=1e-6)
    np.testing.assert_array_equal(after.terminated, ends)
    assert 50 < sum(ends) < 450
    np.testing.assert_array_equal(after.reward, 1.0)
    assert not after.truncated.any()


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("constants", CONSTANTS, ids=str)
def test_equals_gymnasium_running_free(constants: dict[str, float]) -> None:
    """float64: the same start and the same 500 random actions, never brought back together, on past the end."""
    rng = np.random.default_rng(1)
    start, actions = rng.uniform(-0.05, 0.05, 4), rng.integers(0, 2, STEPS)
    env, expected, ends = peer(constants), [], []
    env.state = tuple(start)
    for action in actions:
        _, _, terminated, _, _ = env.step(action)
        expected.append(np.array(env.state))
        ends.append(terminated)
    params, key = ours(constants), jax.random.key(0)

    def step(state: jax.Array, action: jax.Array) -> tuple:
        after = ENVIRONMENT.step(key, state, action, params)
        return after.state, after

    _, after = jax.jit(lambda: jax.lax.scan(step, jnp.asarray(start), jnp.asarray(actions)))()
    np.testing.assert_allclose(after.state, np.array(expected), atol=1e-5, rtol=0)
    np.testing.assert_array_equal(after.terminated, ends)
    assert 0 < sum(ends) < STEPS


def test_thresholds_are_arguments() -> None:
    """The same state ends one agent's episode and not another's."""
    state, right = jnp.array([1.0, 0.0, 0.1, 0.0]), jnp.asarray(1)
    for constants, over in (({}, False), ({"x_threshold": 0.9}, True), ({"theta_threshold": 0.05}, True)):
        assert bool(ENVIRONMENT.step(jax.random.key(0), state, right, ours(constants)).terminated) is over


@pytest.mark.parametrize(("given", "used"), [(0.05, 0.05), (0.15, 0.15)])
def test_starts_fill_the_start_range(given: float, used: float) -> None:
    """Every coordinate uniform in [-start_range, start_range]: its extremes and its standard deviation."""
    keys = jax.random.split(jax.random.key(0), 2000)
    state, observation = jax.jit(jax.vmap(ENVIRONMENT.reset, (0, None)))(keys, ours({"start_range": given}))
    np.testing.assert_array_equal(state, observation)
    assert (np.abs(state).max(0) <= used).all()
    assert (np.abs(state).max(0) > 0.98 * used).all()
    np.testing.assert_allclose(np.std(state, axis=0), used / np.sqrt(3), rtol=0.05)


def test_spread_starts_stay_alive() -> None:
    """However heterogeneous, no episode begins beyond the angle at which it ends."""
    agents = cartpoles(jax.random.key(0), 7, 4.0, CartPole())
    assert agents.start_range.max() == pytest.approx(WIDEST_START)
    assert agents.theta_threshold.min() > WIDEST_START

"""The gradient of one trajectory, and of a batch, against numbers worked out by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs.tabular import environment
from fedpg.gradients import baselines, gpomdp
from fedpg.gradients.batch import Batch, gradient, normalise_advantages
from fedpg.gradients.rollout import Trajectory
from fedpg.policies import softmax

POLICY = softmax(environment("two", 2, 2))


def two_steps(mask: tuple[float, float] = (1.0, 1.0)) -> Trajectory:
    """State 0, action 1, reward 3; then state 1, action 0, reward 8."""
    mask = jnp.array(mask)
    return Trajectory(jnp.array([0, 1]), jnp.array([1, 0]), jnp.array([3.0, 8.0]) * mask, mask)


UNIFORM = {"logits": jnp.zeros((2, 2))}
SKEWED = {"logits": jnp.log(jnp.array([[0.75, 0.25], [0.2, 0.8]]))}


@pytest.mark.parametrize(
    ("params", "baseline", "mask", "expected"),
    [
        # G = (3 + 0.5*8, 0.5*8) = (7, 4); grad log pi(a|s) = 1{a} - pi(.|s)
        (UNIFORM, (0.0, 0.0), (1.0, 1.0), [[-3.5, 3.5], [2.0, -2.0]]),
        (SKEWED, (0.0, 0.0), (1.0, 1.0), [[-5.25, 5.25], [3.2, -3.2]]),
        # minus gamma^t b_t = (1, 0.5*6)
        (UNIFORM, (1.0, 6.0), (1.0, 1.0), [[-3.0, 3.0], [0.5, -0.5]]),
        # ended after one step: G = (3, 0), and the second baseline does not count
        (UNIFORM, (1.0, 6.0), (1.0, 0.0), [[-1.0, 1.0], [0.0, 0.0]]),
    ],
)
def test_two_steps_by_hand(params: dict, baseline: tuple, mask: tuple, expected: list) -> None:
    """g = sum_t (G_t - gamma^t b_t) grad log pi, alone and as a batch of one."""
    tau = two_steps(mask)
    g = gpomdp.gpomdp(POLICY, params, tau, 0.5, jnp.array(baseline))
    np.testing.assert_allclose(g["logits"], expected, rtol=1e-5, atol=1e-6)
    batch = Batch(jax.tree.map(lambda x: x[None], tau), jnp.array([baseline]), jnp.ones(()))
    np.testing.assert_allclose(gradient(POLICY, params, batch, 0.5)["logits"], expected, rtol=1e-5, atol=1e-6)


def test_a_batch_is_the_mean_of_its_trajectories() -> None:
    """Batch gradient = scale times the mean of gpomdp over trajectories of different lengths."""
    one, other = two_steps(), two_steps((1.0, 0.0))
    batch = Batch(jax.tree.map(lambda a, b: jnp.stack([a, b]), one, other), jnp.array([[1.0, 2.0], [0.5, 4.0]]), jnp.asarray(3.0))
    singles = [gpomdp.gpomdp(POLICY, SKEWED, t, 0.9, b)["logits"] for t, b in zip((one, other), batch.baseline, strict=True)]
    np.testing.assert_allclose(gradient(POLICY, SKEWED, batch, 0.9)["logits"], 3.0 * sum(singles) / 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("discount", "from_zero", "from_t"),
    [(1.0, [6.0, 5.0, 3.0], [6.0, 5.0, 3.0]), (0.5, [2.75, 1.75, 0.75], [2.75, 3.5, 3.0])],
)
def test_returns_to_go(discount: float, from_zero: list, from_t: list) -> None:
    """Rewards 1, 2, 3: G_t is discounted from time 0, a baseline's target from time t."""
    reward = jnp.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(gpomdp.returns_to_go(reward, discount), from_zero, rtol=1e-6)
    np.testing.assert_allclose(baselines.targets(reward, discount), from_t, rtol=1e-6)


@pytest.mark.parametrize(("discount", "horizon"), [(0.5, 200), (0.9, 1200)])
def test_targets_survive_long_horizons(discount: float, horizon: int) -> None:
    """gamma^t underflows in float32; the return-to-go of a reward of 1 a step is still (1 - gamma^(H-t)) / (1 - gamma)."""
    expected = (1.0 - discount ** np.arange(horizon, 0, -1.0)) / (1.0 - discount)
    np.testing.assert_allclose(baselines.targets(jnp.ones(horizon), discount), expected, rtol=1e-3)


def test_normalised_advantages() -> None:
    """Over the executed steps, and only those, advantages get mean 0 and standard deviation 1."""
    key = jax.random.key(0)
    mask = jnp.ones((4, 6)).at[1, 2:].set(0.0)
    tau = Trajectory(jnp.zeros((4, 6), int), jnp.zeros((4, 6), int), jax.random.normal(key, (4, 6)) * mask, mask)
    batch = normalise_advantages(Batch(tau, jnp.full((4, 6), 5.0), jnp.ones(())), 0.9)
    coefficient = batch.scale * jax.vmap(gpomdp.coefficients, (0, 0, None))(tau, batch.baseline, 0.9)
    advantage = np.asarray(coefficient / 0.9 ** np.arange(6))[np.asarray(mask) > 0]
    assert advantage.size == 20
    np.testing.assert_allclose([advantage.mean(), advantage.std()], [0.0, 1.0], atol=1e-5)
    np.testing.assert_array_equal(coefficient[1, 2:], 0.0)

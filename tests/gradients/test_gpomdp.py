"""The gradient of one trajectory, and of a batch, against numbers worked out by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs.tabular import environment
from fedpg.gradients import gpomdp
from fedpg.gradients.batch import Batch, gradient, normalise_advantages, weighted_gradient
from fedpg.gradients.rollout import Trajectory
from fedpg.policies import softmax

POLICY = softmax(environment("two", 2, 2))


def two_steps(mask: tuple[float, float] = (1.0, 1.0)) -> Trajectory:
    """State 0, action 1, reward 3; then state 1, action 0, reward 8."""
    mask = np.array(mask)
    return Trajectory(np.array([0, 1]), np.array([1, 0]), np.array([3.0, 8.0]) * mask, mask)


UNIFORM = {"logits": jnp.zeros((2, 2))}
SKEWED = {"logits": jnp.asarray(np.log([[0.75, 0.25], [0.2, 0.8]]))}


@jax.jit
def of_one(params, tau, discount, baseline):
    """g of one trajectory."""
    return jax.grad(gpomdp.surrogate, 1)(POLICY, params, tau, gpomdp.coefficients(tau, jnp.asarray(baseline), discount))["logits"]


@pytest.mark.parametrize(
    ("baseline", "mask", "expected"),
    [
        # R = (3 + 0.5*8, 8) = (7, 8), undiscounted by time: the second term doubles
        ((0.0, 0.0), (1.0, 1.0), [[-3.5, 3.5], [4.0, -4.0]]),
        # minus b_t = (1, 6)
        ((1.0, 6.0), (1.0, 1.0), [[-3.0, 3.0], [1.0, -1.0]]),
        ((1.0, 6.0), (1.0, 0.0), [[-1.0, 1.0], [0.0, 0.0]]),
    ],
)
def test_without_the_factor_of_time_by_hand(baseline: tuple, mask: tuple, expected: list) -> None:
    """g = sum_t (R_t - b_t) grad log pi, alone and with prefix weights, which are 1 where the policies are equal."""
    batch = Batch(jax.tree.map(lambda x: x[None], two_steps(mask)), np.array([baseline]), np.ones(()))
    found = gradient(POLICY, UNIFORM, batch, 0.5, time_discount=False)["logits"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    for kind in ("trajectory", "prefix"):
        weighted, _ = weighted_gradient(POLICY, UNIFORM, UNIFORM, batch, 0.5, kind, time_discount=False)
        np.testing.assert_allclose(weighted["logits"], expected, rtol=1e-5, atol=1e-6)


TOGETHER = jax.jit(lambda params, batch, discount: gradient(POLICY, params, batch, discount)["logits"])


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
    np.testing.assert_allclose(of_one(params, tau, 0.5, np.array(baseline)), expected, rtol=1e-5, atol=1e-6)
    batch = Batch(jax.tree.map(lambda x: x[None], tau), np.array([baseline]), np.ones(()))
    np.testing.assert_allclose(TOGETHER(params, batch, 0.5), expected, rtol=1e-5, atol=1e-6)


def test_a_batch_is_the_mean_of_its_trajectories() -> None:
    """Batch gradient = scale times the mean of gpomdp over trajectories of different lengths."""
    one, other = two_steps(), two_steps((1.0, 0.0))
    batch = Batch(jax.tree.map(lambda a, b: np.stack([a, b]), one, other), np.array([[1.0, 2.0], [0.5, 4.0]]), np.asarray(3.0))
    singles = [np.asarray(of_one(SKEWED, t, 0.9, b)) for t, b in zip((one, other), batch.baseline, strict=True)]
    np.testing.assert_allclose(TOGETHER(SKEWED, batch, 0.9), 3.0 * sum(singles) / 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("discount", "from_zero", "from_t"),
    [(1.0, [6.0, 5.0, 3.0], [6.0, 5.0, 3.0]), (0.5, [2.75, 1.75, 0.75], [2.75, 3.5, 3.0])],
)
def test_returns_to_go(discount: float, from_zero: list, from_t: list) -> None:
    """Rewards 1, 2, 3: G_t is discounted from time 0, a baseline's target from time t."""
    reward = jnp.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(gpomdp.returns_to_go(reward, discount), from_zero, rtol=1e-6)
    np.testing.assert_allclose(gpomdp.targets(reward, discount), from_t, rtol=1e-6)


@pytest.mark.parametrize(("discount", "horizon"), [(0.5, 200), (0.9, 1200)])
def test_targets_survive_long_horizons(discount: float, horizon: int) -> None:
    """gamma^t underflows in float32; the return-to-go of a reward of 1 a step is still (1 - gamma^(H-t)) / (1 - gamma)."""
    expected = (1.0 - discount ** np.arange(horizon, 0, -1.0)) / (1.0 - discount)
    np.testing.assert_allclose(gpomdp.targets(jnp.ones(horizon), discount), expected, rtol=1e-3)


def test_equal_advantages_normalise_to_nothing() -> None:
    """Where every step did as well as any other, rounding errors are not blown up into advantages of order 1."""
    rewards = np.random.default_rng(0).normal(size=(50, 1, 1)) * np.ones((3, 1))  # 50 batches of 3 equal one-step episodes
    steps = np.zeros((3, 1), int)

    @jax.jit
    @jax.vmap
    def normalised(reward: jax.Array) -> jax.Array:
        batch = normalise_advantages(Batch(Trajectory(steps, steps, reward, jnp.ones((3, 1))), jnp.zeros((3, 1)), jnp.ones(())), 0.9)
        return batch.scale * (reward - batch.baseline)

    np.testing.assert_allclose(normalised(rewards), 0.0, atol=0.05)


def test_normalised_advantages() -> None:
    """Over the executed steps, and only those, advantages get mean 0 and standard deviation 1."""
    mask = np.ones((4, 6))
    mask[1, 2:] = 0.0
    reward = np.random.default_rng(0).normal(size=(4, 6)) * mask
    tau = Trajectory(np.zeros((4, 6), int), np.zeros((4, 6), int), reward, mask)

    @jax.jit
    def normalised(batch: Batch) -> jax.Array:
        batch = normalise_advantages(batch, 0.9)
        return batch.scale * jax.vmap(gpomdp.coefficients, (0, 0, None))(tau, batch.baseline, 0.9)

    coefficient = np.asarray(normalised(Batch(tau, np.full((4, 6), 5.0), np.ones(()))))
    advantage = (coefficient / 0.9 ** np.arange(6))[mask > 0]
    assert advantage.size == 20
    np.testing.assert_allclose([advantage.mean(), advantage.std()], [0.0, 1.0], atol=1e-3)
    np.testing.assert_array_equal(coefficient[1, 2:], 0.0)

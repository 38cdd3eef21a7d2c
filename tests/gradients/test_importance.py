"""The kinds of importance weight: bias of truncated ones, variance of prefix ones, the batch's mean of self-normalised ones."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs.tabular import environment
from fedpg.gradients import exact, importance
from fedpg.gradients.batch import Batch, gradient, weighted_gradient
from fedpg.gradients.rollout import Trajectory
from fedpg.policies import softmax
from helpers import enumeration
from helpers.compare import assert_trees_close, largest_difference
from helpers.enumeration import ACTIONS, DISCOUNT, HORIZON, STATES, each, expectation, softmax_table

POLICY = softmax(environment("tiny", STATES, ACTIONS))
G = jax.jit(lambda params, batch: gradient(POLICY, params, batch, DISCOUNT))
F = jax.jit(lambda params, behaviour, batch, kind: weighted_gradient(POLICY, params, behaviour, batch, DISCOUNT, kind), static_argnums=3)


def logits(rows: list[list[float]]) -> dict[str, jax.Array]:
    return {"logits": jnp.array(rows)}


def here() -> dict[str, jax.Array]:
    return logits([[0.3, -0.2], [-0.4, 0.1]])


def there() -> dict[str, jax.Array]:
    return logits([[1.2, -0.9], [-1.1, 0.8]])


def tiny_batch(indices: list[int]) -> Batch:
    """Some of the 64 trajectories, with a baseline."""
    tau = jax.tree.map(lambda x: x[np.array(indices)], enumeration.all_trajectories(enumeration.tiny_mdp()))
    return Batch(tau, 0.1 * tau.reward + 0.3, np.ones(()))


def hand_weights(batch: Batch) -> np.ndarray:
    """w of every trajectory as a product of ratios, in NumPy."""
    ratio = softmax_table(there()["logits"]) / softmax_table(here()["logits"])
    s, a = np.asarray(batch.trajectory.observation), np.asarray(batch.trajectory.action)
    return np.prod(ratio[s, a], axis=1)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", ["truncated", "truncated-prefix"])
def test_truncated_weights_are_biased(kind: str) -> None:
    """Where weights exceed the cap, E[F] is not grad J(th'); with a cap above all weights it is."""
    mdp = enumeration.tiny_mdp()
    tau = enumeration.all_trajectories(mdp)
    at = enumeration.probabilities(mdp, softmax_table(here()["logits"]), tau)
    wanted = jax.jit(lambda p: exact.gradient(POLICY, p, mdp, DISCOUNT, HORIZON))(there())

    truncated = each(lambda b, p, q, cap: weighted_gradient(POLICY, p, q, b, DISCOUNT, kind, cap)[0])

    def mean(cap: float) -> dict:
        return expectation(truncated(tau, 0.0 * tau.reward, there(), here(), cap), at)

    assert hand_weights(Batch(tau, tau.reward, np.ones(()))).max() > 2.0
    assert largest_difference(mean(2.0), wanted) > 1e-3
    assert_trees_close(mean(100.0), wanted, atol=1e-8)


@pytest.mark.usefixtures("float64")
def test_prefix_weights_have_a_smaller_second_moment() -> None:
    """E|F|^2 with per-decision weights is below that of whole-trajectory weights, in this example."""
    mdp = enumeration.tiny_mdp()
    tau = enumeration.all_trajectories(mdp)
    at = enumeration.probabilities(mdp, softmax_table(here()["logits"]), tau)

    def second_moment(kind: str) -> float:
        f = each(lambda b, p, q: weighted_gradient(POLICY, p, q, b, DISCOUNT, kind)[0])(tau, 0.0 * tau.reward, there(), here())
        return float(expectation(np.asarray(f["logits"]) ** 2, at).sum())

    assert second_moment("prefix") < 0.95 * second_moment("trajectory")


@pytest.mark.usefixtures("float64")
def test_prefix_coefficients_by_hand() -> None:
    """r_h is weighted by the product of ratios up to h, b_t by that up to t; nothing counts after the end."""
    tau = Trajectory(np.zeros(3, int), np.zeros(3, int), np.array([1.0, 10.0, 0.0]), np.array([1.0, 1.0, 0.0]))
    log_ratio = jnp.log(jnp.array([2.0, 0.25, 1.0]))
    coefficient = importance.prefix_coefficients(tau, log_ratio, jnp.array([3.0, 4.0, 7.0]), 0.5)
    # w_0 = 2, w_1 = 1/2: [2*1 + 1/2*5 - 2*3, 1/2*5 - 1/2*(1/2*4), 0]
    np.testing.assert_allclose(coefficient, [-1.5, 1.5, 0.0], rtol=1e-12)
    cut = importance.prefix_coefficients(tau, log_ratio, jnp.array([3.0, 4.0, 7.0]), 0.5, math.log(1.5))
    # w_0 = 1.5 instead of 2, w_1 as it was: [1.5*1 + 1/2*5 - 1.5*3, the same, 0]
    np.testing.assert_allclose(cut, [-0.5, 1.5, 0.0], rtol=1e-12)


def test_self_normalised_single_trajectory_has_weight_one() -> None:
    """A batch of one divides its weight by itself: F equals g at params."""
    batch = tiny_batch([37])
    f, _ = F(there(), here(), batch, "self-normalised")
    assert_trees_close(f, G(there(), batch), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("far", [40.0, 400.0])
def test_self_normalised_weights_survive_underflow(far: float) -> None:
    """However unlikely the actions have become, their relative weights are finite: 1 for a single trajectory."""
    batch = tiny_batch([0])  # action 0 in state 0, three times
    params = logits([[-far, 0.0], [0.0, 0.0]])
    f, _ = F(params, here(), batch, "self-normalised")
    assert_trees_close(f, G(params, batch), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("float64")
def test_self_normalised_batch_divides_by_the_mean_weight() -> None:
    """F of a batch = sum_b w_b g_b / sum_b w_b, with weights and the sum taken by hand."""
    indices = [3, 18, 40, 63]
    batch, w = tiny_batch(indices), hand_weights(tiny_batch(indices))
    f, _ = F(there(), here(), batch, "self-normalised")
    singles = [np.asarray(G(there(), tiny_batch([i]))["logits"]) for i in indices]
    assert np.ptp(w) > 0.5
    np.testing.assert_allclose(f["logits"], sum(wi * gi for wi, gi in zip(w, singles, strict=True)) / w.sum(), rtol=1e-10)


def test_statistics_are_sums_over_the_batch() -> None:
    """Count, sum, sum of squares and maximum of the hand-computed weights; huge ones stay finite."""
    batch = tiny_batch([3, 18, 40, 63])
    w = hand_weights(batch)
    _, weights = F(there(), here(), batch, "trajectory")
    np.testing.assert_allclose(weights, [4, w.sum(), (w**2).sum(), w.max()], rtol=1e-5)
    assert all(np.isfinite(importance.statistics(jnp.full((2, 3), 1e4))))
    assert np.isfinite(jnp.exp(importance.log_weights(jnp.full((2, 3), 1e4), "trajectory", 2.0))).all()

"""The published code's estimates, by plain loops: whitening by trajectory, padding, weights, and the softmax over time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs.tabular import environment
from fedpg.gradients.batch import Batch
from fedpg.gradients.published import padded, published, whitened
from fedpg.gradients.rollout import Trajectory
from fedpg.policies import gaussian, softmax
from helpers.compare import random_params
from helpers.worlds import POINT

DISCOUNT = 0.9
STATES = np.array([[0, 1, 1, 1], [1, 0, 1, 0]])
ACTIONS = np.array([[1, 0, 1, 1], [0, 1, 1, 0]])
REWARD = np.array([[1.0, 2.0, 0.0, 0.0], [0.5, -1.0, 3.0, 1.0]])
LENGTHS = (2, 4)
MASK = np.array([[1.0, 1, 0, 0], [1, 1, 1, 1]])
NEW, OLD = np.array([[0.4, -0.3], [0.1, 0.9]]), np.array([[1.7, -0.6], [-0.9, 0.8]])


def drawn():
    tau = Trajectory(*map(jnp.asarray, (STATES, ACTIONS, REWARD, MASK)))
    return Batch(tau, jnp.zeros((2, 4)), jnp.ones(()))


def advantages(b):
    """Discounted from t, standardised over the trajectory with n - 1."""
    n = LENGTHS[b]
    returns = np.array([sum(DISCOUNT ** (h - t) * REWARD[b, h] for h in range(t, n)) for t in range(n)])
    return (returns - returns.mean()) / np.sqrt(returns.var(ddof=1) + 1e-8)


def likelihood(logits, b, bug):
    """l_t over the padded horizon: after the end, action 0 in state 0."""
    n = LENGTHS[b]
    states, actions = ([*row[b, :n], *[0] * (4 - n)] for row in (STATES, ACTIONS))
    x = logits[states]
    p = np.exp(x) / np.exp(x).sum(0 if bug else 1, keepdims=True)  # dim=1 of (paths, time, actions) is time
    p = p / p.sum(1, keepdims=True)  # what the distribution's class does to whatever it is given
    return np.log(p[np.arange(4), actions])


@pytest.mark.parametrize("bug", [True, False])
def test_weighted_gradient_and_score_by_hand(bug, float64):
    estimates = published(softmax(environment("tiny", 2, 2)), DISCOUNT, bug)
    found = jax.jit(lambda new, old: (estimates.weighted(drawn(), new, old, 0.8, 1.2), estimates.score(drawn(), new)))
    (weighted, statistics), score = found({"logits": jnp.asarray(NEW)}, {"logits": jnp.asarray(OLD)})
    w = np.exp([(likelihood(NEW, b, bug) - likelihood(OLD, b, bug)).sum() for b in (0, 1)])
    assert w.min() < 0.8 or w.max() > 1.2  # the interval matters
    np.testing.assert_allclose(statistics.total, w.sum(), rtol=1e-10)

    def mean(logits, with_rewards):
        terms = [
            likelihood(logits, b, bug)[: LENGTHS[b]] * (np.clip(w[b], 0.8, 1.2) * advantages(b) if with_rewards else 1.0) for b in (0, 1)
        ]
        return np.concatenate(terms).mean()

    for measured, with_rewards in ((weighted, True), (score, False)):
        slope = [(mean(NEW + 1e-6 * e, with_rewards) - mean(NEW - 1e-6 * e, with_rewards)) / 2e-6 for e in np.eye(4).reshape(4, 2, 2)]
        np.testing.assert_allclose(measured["logits"].ravel(), slope, atol=1e-8)

    # With the bug a constant on the logits of one action at all times changes no likelihood: a bias has no gradient.
    along_bias = np.abs(np.asarray(weighted["logits"]).sum(0)).max()
    assert (along_bias < 1e-12) == bug


def test_advantages_and_padding(float64):
    for b in (0, 1):
        tau = jax.tree.map(lambda x, b=b: x[b], drawn().trajectory)
        np.testing.assert_allclose(whitened(tau, DISCOUNT)[: LENGTHS[b]], advantages(b), rtol=1e-5)
        assert not whitened(tau, DISCOUNT)[LENGTHS[b] :].any()
        assert not np.asarray(padded(tau).observation)[LENGTHS[b] :].any()
    alone = Trajectory(jnp.zeros(3, int), jnp.zeros(3, int), jnp.array([5.0, 0, 0]), jnp.array([1.0, 0, 0]))
    assert np.isfinite(whitened(alone, DISCOUNT)).all()  # one step has no deviation


def test_the_bug_is_in_the_categorical_policy_only():
    policy = gaussian(POINT, hidden=(3,))
    rng = np.random.default_rng(0)
    tau = Trajectory(*(jnp.asarray(rng.normal(size=shape)) for shape in ((2, 4, 3), (2, 4, 2), (2, 4))), jnp.asarray(MASK))
    batch, params = Batch(tau, jnp.zeros((2, 4)), jnp.ones(())), random_params(policy, 0)
    both = jax.jit(lambda params: [published(policy, DISCOUNT, bug).score(batch, params) for bug in (True, False)])
    for a, b in zip(*map(jax.tree.leaves, both(params)), strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.isfinite(a).all()

"""The published code's two algorithms and their estimates: every line written out by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs.tabular import environment
from fedpg.errors import UserError
from fedpg.gradients.batch import Batch
from fedpg.gradients.rollout import Trajectory
from fedpg.own import load
from fedpg.policies import gaussian, softmax
from fedpg.problem import policy_gradient
from helpers.compare import random_params
from helpers.enumeration import tiny_mdp
from helpers.environments import POINT
from helpers.federations import bowl

FILE = Path(__file__).parents[2] / "benchmarks" / "authors_code.py"
load(f"{FILE}:Estimates", "algorithm")
CODE = sys.modules[f"fedpg_own_{FILE.stem}"]
Estimates, authors_hapg, authors_svrpg, padded, whitened = (
    getattr(CODE, name) for name in ("Estimates", "authors_hapg", "authors_svrpg", "padded", "whitened")
)

WORLD = environment("tiny", 2, 2)
PROBLEM = policy_gradient(WORLD, softmax(WORLD), horizon=5, discount=0.9, batch_size=4, baseline="time")
BETA, ETA, STEPS = 0.3, 0.75, 3
QUICKLY = {"xla_backend_optimization_level": 0}


@pytest.mark.parametrize("factory", [authors_svrpg, authors_hapg])
def test_a_round_by_hand(factory, float64):
    """In double precision the finite difference of hapg is the derivative; in float32, as published, it is noise."""
    hessian = factory is authors_hapg
    largest, offset, decay = (0.1, 2.0, 0.0) if hessian else (0.05, 1.0, 1e-4)
    algorithm = factory(PROBLEM, beta=BETA, local_lr=ETA, local_steps=STEPS)
    estimates = Estimates(PROBLEM.policy, 0.9, softmax_bug=True)
    theta, mdp, key = np.array([[0.2, -0.1], [0.5, 0.0]]), tiny_mdp(), jax.random.key(3)

    def params(logits):
        return {"logits": jnp.asarray(logits)}

    @jax.jit
    def sample(key, at):
        return PROBLEM.sample(key, at, mdp, PROBLEM.init_memory())[0]

    @jax.jit
    def estimated(drawn, at, behaviour):
        low = 0.8 if hessian else 1e-30
        score = estimates.score(drawn, at)["logits"]
        return estimates.weighted(drawn, at, behaviour, low, 1.2)[0]["logits"], score

    now, before, d, squares = theta, theta, None, 0.0
    for k, step_key in enumerate(jax.random.split(key, STEPS)):
        mix_key, sample_key = jax.random.split(step_key)
        share = float(jax.random.uniform(mix_key)) if hessian else 1.0
        mixed = share * now + (1 - share) * before
        drawn = sample(sample_key, params(mixed if hessian else now))
        g = np.asarray(estimated(drawn, params(now), params(mixed if hessian else now))[0])
        if k == 0:
            d = g
        elif hessian:
            v, h = now - before, 1e-5
            score, ahead, behind = (np.asarray(estimated(drawn, params(x), params(now))[1]) for x in (mixed, mixed + h * v, mixed - h * v))
            d = BETA * g + (1 - BETA) * (d + (score * v).sum() * score + (ahead - behind) / (2 * h))
        else:
            d = g + (1 - BETA) * (d - np.asarray(estimated(drawn, params(before), params(now))[0]))
        squares += (g**2).sum()
        cut = min(np.sqrt((g**2).sum()), largest)
        after = (1 - decay) * (now + ETA / np.cbrt(offset + 5 * squares) * np.clip(d, -cut, cut))
        before, now = now, after
    expected = mixed if hessian else now

    server, state = algorithm.init(params(theta))
    run = jax.jit(algorithm.local_update, compiler_options=QUICKLY)
    message, _, info = run(key, server.shared, state, mdp)
    np.testing.assert_allclose(message["logits"], expected - theta, rtol=1e-6, atol=1e-9)
    assert int(info.usage.trajectories) == 3 * 4
    # the server of January 2024 takes the mean
    messages = jax.tree.map(lambda x: jnp.stack([x, 3.0 * x]), message)
    np.testing.assert_allclose(
        algorithm.aggregate(server, messages, jnp.ones(2))[0].shared.params["logits"], theta + 2 * (expected - theta)
    )


def test_what_it_needs_is_said():
    with pytest.raises(UserError, match="authors-svrpg needs the trajectories of an environment"):
        authors_svrpg(bowl().problem, local_lr=0.75)
    for values, message in (({"beta": 1.5}, "beta"), ({"largest": 0.0}, "largest"), ({"local_lr": -1.0}, "local-lr")):
        with pytest.raises(UserError, match=message):
            authors_hapg(PROBLEM, **({"local_lr": 0.75} | values))


def test_visit_counts_are_replaced_by_trajectories():
    """A finite MDP without a baseline is sampled as visit counts, from which these estimates cannot be made."""
    counts = policy_gradient(WORLD, softmax(WORLD), horizon=5, discount=0.9, baseline="none")
    algorithm = authors_svrpg(counts, local_lr=0.75, local_steps=2)
    server, state = algorithm.init(counts.init_params(jax.random.key(0)))
    message, _, info = jax.jit(algorithm.local_update, compiler_options=QUICKLY)(jax.random.key(1), server.shared, state, tiny_mdp())
    assert float(jnp.abs(message["logits"]).max()) > 0
    assert int(info.usage.env_steps) == 2 * 5


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
    estimates = Estimates(softmax(WORLD), DISCOUNT, bug)
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
    both = jax.jit(lambda params: [Estimates(policy, DISCOUNT, bug).score(batch, params) for bug in (True, False)])
    for a, b in zip(*map(jax.tree.leaves, both(params)), strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.isfinite(a).all()

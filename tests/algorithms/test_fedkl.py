"""FedKL: what it is without its penalties, the rule for their coefficients, and what they do."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import trees
from fedpg.algorithms.fedkl import adapted, fedkl
from fedpg.algorithms.pavg import pavg
from fedpg.envs.tabular import environment
from fedpg.errors import UserError
from fedpg.policies import custom, gaussian, softmax
from fedpg.problem import exact_policy_gradient, policy_gradient
from helpers.compare import assert_trees_close
from helpers.enumeration import softmax_table, tiny_mdp
from helpers.federations import bowl
from helpers.slide import TRACED

WORLD = environment("tiny", 2, 2)
QUICKLY = {"xla_backend_optimization_level": 0}
"""These programs run once."""


def sampled(baseline):
    return policy_gradient(WORLD, softmax(WORLD), horizon=6, discount=0.9, batch_size=3, baseline=baseline)


def one_update(problem, algorithm):
    """What an agent sends, its state and its costs after one round."""
    server, state = algorithm.init(problem.init_params(jax.random.key(0)))
    return jax.jit(algorithm.local_update, compiler_options=QUICKLY)(jax.random.key(2), server.shared, state, tiny_mdp())


@pytest.mark.parametrize("baseline", ["time", "value"])
def test_one_epoch_without_the_anchor_is_pavg(baseline):
    """KL has no slope at the policy that sampled, and the surrogate's is g: both with trajectories and with visit counts."""
    problem, steps = sampled(baseline), {"local_lr": 0.02, "local_steps": 3}
    ours, state, costs = one_update(problem, fedkl(problem, **steps, epochs=1, anchored=0.0))
    plain, memory, same_costs = one_update(problem, pavg(problem, **steps))
    assert_trees_close(ours, plain, atol=1e-6)
    assert_trees_close((state.memory, costs), (memory, same_costs), rtol=1e-5)
    assert float(jnp.abs(ours["logits"]).max()) > 0.01
    assert float(state.anchored) == 0.0
    assert float(state.near) == 1.0 / 8  # steps this small leave KL below its target


def test_epochs_by_hand_on_a_tiny_mdp(float64):
    """Two local steps of two epochs with exact tables, every derivative by central differences of L written out."""
    mdp, gamma, lr, b, s, target = tiny_mdp(), 0.8, 0.6, 2.0, 0.3, 0.05
    problem = exact_policy_gradient(WORLD, softmax(WORLD), discount=gamma)
    algorithm = fedkl(problem, local_lr=lr, local_steps=2, epochs=2, near=b, near_target=target, anchored=s, anchored_target=10.0)
    p, r, rho = (np.asarray(x) for x in mdp)
    start = np.array([[0.2, -0.1], [0.5, 0.0]])

    def occupancy(pi):
        return np.linalg.solve((np.eye(2) - gamma * np.einsum("sa,sat->st", pi, p)).T, rho)

    def loss(logits, old, near):
        pi, pi_old, common = (softmax_table(x) for x in (logits, old, start))
        left = np.eye(2) - gamma * np.einsum("sa,sat->st", pi_old, p)
        q = r + gamma * p @ np.linalg.solve(left, (pi_old * r).sum(1))
        x, x_common = occupancy(pi_old), occupancy(common)
        gained = (x[:, None] * pi * (q - (pi_old * q).sum(1, keepdims=True))).sum()
        to_old, to_common = ((z * np.log(z / pi)).sum(1) for z in (pi_old, common))
        root = np.sqrt(np.maximum(to_common, 1e-8))
        return gained - x.sum() * (near * (x @ to_old) / x.sum() + s * (x_common @ root) / x_common.sum()), (x @ to_old) / x.sum()

    logits, near, coefficients = start, b, []
    for _ in range(2):
        old = logits
        for _ in range(2):
            units, h = np.eye(4).reshape(4, 2, 2), 1e-6
            slope = [(loss(logits + h * e, old, near)[0] - loss(logits - h * e, old, near)[0]) / (2 * h) for e in units]
            logits = logits + lr * np.array(slope).reshape(2, 2)
        away = loss(logits, old, near)[1]
        near = near / 2 if away < target / 1.1 else near * 2 if away > target * 1.1 else near
        coefficients.append(near)
    server, state = algorithm.init({"logits": jnp.asarray(start)})
    message, state, _ = jax.jit(algorithm.local_update)(jax.random.key(0), server.shared, state, mdp)
    np.testing.assert_allclose(message["logits"], logits - start, atol=1e-6)
    np.testing.assert_allclose(state.near, coefficients[-1], rtol=1e-6)
    np.testing.assert_allclose(state.anchored, s)  # below its target, but never below its first value
    assert coefficients != [b, b]  # else nothing was adapted


def test_coefficients_follow_a_sequence_by_hand():
    """Halved, kept, doubled, cut above by 20 and by max|Adv| / D, cut below; 0 stays 0."""
    measured = [0.001, 0.0095, 0.0105, 0.012, 0.5, 0.5, 0.3]
    near, seen = jnp.array(4.0), []
    for d in measured:
        near = adapted(near, jnp.array(d), 0.01, 1e-8, jnp.array(3.0))
        seen.append(float(near))
    np.testing.assert_allclose(seen, [2.0, 2.0, 2.0, 4.0, 6.0, 6.0, 10.0], rtol=1e-6)
    small = jnp.array(1e-3)
    low, cut, off = (
        adapted(c, jnp.array(d), 0.6, small, jnp.array(1e9)) for c, d in ((small, 0.1), (jnp.array(15.0), 0.9), (jnp.zeros(()), 0.9))
    )
    np.testing.assert_allclose([low, cut, off], [1e-3, 20.0, 0.0], rtol=1e-6)


def test_the_anchor_keeps_agents_near_the_common_policy():
    """On average over 64 keys. One program for both coefficients: they may be traced."""
    problem = sampled("value")
    params = problem.init_params(jax.random.key(0))

    def moved(anchored):
        settings = {"local_lr": 0.1, "local_steps": 4, "near": 0.0, "anchored_target": 1e-3}
        algorithm = fedkl(problem, anchored=anchored, **settings)
        server, state = algorithm.init(params)
        updates = jax.vmap(lambda key: algorithm.local_update(key, server.shared, state, tiny_mdp())[0])
        return jnp.mean(jax.vmap(trees.norm_sq)(updates(jax.random.split(jax.random.key(2), 64))))

    moved = jax.jit(moved, compiler_options=QUICKLY)
    assert float(moved(20.0)) < 0.5 * float(moved(0.0))


def test_what_it_cannot_know_it_refuses():
    own = gaussian(TRACED, hidden=(3,))
    blind = policy_gradient(TRACED, custom(own.init, own.act, own.log_prob), horizon=3, discount=0.9)
    for problem in (bowl().problem, blind):
        with pytest.raises(UserError, match="fedkl needs a policy whose distribution is known"):
            fedkl(problem, local_lr=0.1)
    problem = sampled("none")
    for values, message in (({"epochs": 0}, "epochs"), ({"near": -1.0}, "near"), ({"anchored_target": 0.0}, "anchored_target")):
        with pytest.raises(UserError, match=message):
            fedkl(problem, local_lr=0.1, **values)

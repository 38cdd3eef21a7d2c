"""Where the rivals come to rest with exact gradients, and that N-HARPG's directions are unbiased without importance weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import trees
from fedpg.algorithms import ALGORITHMS, nharpg
from fedpg.envs.tabular import MDP, environment
from fedpg.gradients import exact
from fedpg.policies import softmax
from fedpg.problem import exact_policy_gradient, policy_gradient
from helpers import loops
from helpers.compare import normal_like, random_params
from helpers.enumeration import DISCOUNT, HORIZON, tiny_mdp
from helpers.federations import Small, bowl, run


def settled(small, name, local_lr, rounds, **own):
    return run(small, ALGORITHMS[name](small.problem, local_lr=local_lr, local_steps=5, **own), rounds)


@pytest.mark.parametrize("name", ["scaffold", "fast-fedpg", "pavg", "fedprox", "fedavg-m", "mfpo", "nharpg"])
def test_on_quadratics(name, float64):
    """SCAFFOLD and Fast-FedPG rest where grad J = 0, to the last digits; the others, with K > 1, elsewhere."""
    small = bowl()
    ran = settled(small, name, 0.05, 600, **({"step": "plain"} if name == "nharpg" else {}))
    optimum = loops.Bowls(trees.take(ran.state.agents, 0)).optimum()
    gap = np.abs(ran.shared.params[0] - optimum).max()
    assert gap < 1e-10 if name in ("scaffold", "fast-fedpg") else gap > 1e-3


def torn(key, seed):
    """Two agents in one place with two actions. Each is paid once, then all is over: one for action 0, 1; one for action 1, 2.25.

    With p the chance of action 0 and gamma = 1/2: J_1 = p / (1 - (1-p)/2), J_2 = 2.25 (1-p) / (1 - p/2), both concave in p. Their mean
    is largest where (1 - p/2) / (1/2 + p/2) = sqrt(2.25), at p = 0.2: the best common policy is a lottery.
    """
    stay, leave = jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])
    over = jnp.stack([leave, leave])
    transition = jnp.stack([jnp.stack([jnp.stack([leave, stay]), over]), jnp.stack([jnp.stack([stay, leave]), over])])
    reward = jnp.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 2.25], [0.0, 0.0]]])
    return MDP(transition, reward, jnp.stack([stay, stay]))


@pytest.mark.parametrize("name", ["scaffold", "fast-fedpg", "pavg"])
def test_on_agents_who_are_torn(name, float64):
    world = environment("torn", 2, 2)
    problem = exact_policy_gradient(world, softmax(world), discount=0.5)
    ran = settled(Small(problem, torn), name, 0.5, 300)
    chance = jax.nn.softmax(ran.shared.params["logits"][0, 0])[0]
    at_rest = ran.sim.evaluate(ran.state).grad_norm_sq[0]
    if name == "pavg":
        assert abs(chance - 0.2) > 0.01
        assert at_rest > 1e-5
    else:
        np.testing.assert_allclose(chance, 0.2, atol=1e-9)
        assert at_rest < 1e-20


def test_directions_of_nharpg_are_unbiased_without_weights():
    """E d = e grad J(th) + (1-e) [ d_r + grad J(th) - grad J(theta_{r-1}) ], by many draws of one local step against exact gradients."""
    world, own, draws = environment("tiny", 2, 2), 0.4, 40_000
    policy, mdp = softmax(world), jax.tree.map(lambda x: x.astype(jnp.float32), tiny_mdp())
    problem = policy_gradient(world, policy, horizon=HORIZON, discount=DISCOUNT)
    algorithm = nharpg(problem, beta=own, local_lr=0.1)
    now, before = random_params(policy, 1, 1.0), random_params(policy, 2, 1.0)
    shared = algorithm.init(now)[0].shared._replace(previous=before, direction=normal_like(3, now))
    keys = jax.random.split(jax.random.key(0), draws)
    message, _, _ = jax.jit(jax.vmap(lambda key: algorithm.local_update(key, shared, problem.init_memory(), mdp)))(keys)
    found = np.asarray(message.direction["logits"])
    here, there = (np.asarray(exact.gradient(policy, params, mdp, DISCOUNT, HORIZON)["logits"]) for params in (now, before))
    expected = own * here + (1 - own) * (np.asarray(shared.direction["logits"]) + here - there)
    error = found.std(0) / np.sqrt(draws)
    assert np.all(np.abs(found.mean(0) - expected) < 4.5 * error)
    assert np.abs(here - there).max() > 10 * error.max()  # without Lambda the test would fail

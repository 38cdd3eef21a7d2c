"""Algorithms against each other and against recursions written out by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import trees
from fedpg.envs.tabular import environment
from fedpg.gradients.rollout import rollout
from fedpg.keys import Purpose, agent_key
from fedpg.policies import softmax
from helpers.compare import assert_trees_close
from helpers.enumeration import softmax_table
from helpers.federations import SMALL, bowl, make, rl, run


@pytest.mark.parametrize(
    "world", ["bowl", "random-mdp", *(pytest.param(world, marks=pytest.mark.slow) for world in ("direct", "cartpole"))]
)
def test_fedsvrpg_m_with_beta_one_is_pavg_bit_for_bit(world):
    small = SMALL[world]()
    momentum, plain = (run(small, make(name, small.problem, **more), 4, 2) for name, more in (("fedsvrpg-m", {"beta": 1.0}), ("pavg", {})))
    assert_trees_close(momentum.shared.params, plain.shared.params)
    assert_trees_close(momentum.info.local.usage, plain.info.local.usage)


def test_beta_close_to_one_is_close_to_pavg():
    small = SMALL["random-mdp"]()
    near = run(small, make("fedsvrpg-m", small.problem, beta=1.0 - 1e-6, u0_batches=0), 4, 2).shared.params
    assert_trees_close(near, run(small, make("pavg", small.problem), 4, 2).shared.params, atol=1e-4)


@pytest.mark.slow
def test_one_agent_one_local_step_is_storm():
    """N = K = 1: u <- g + (1-beta)(u - w g_prev), theta <- theta + lambda u, with g and w from the table by hand."""
    beta, eta, rounds = 0.3, 0.05, 4
    small = rl("random-mdp", agents=1, batch_size=1, baseline="none")
    algorithm = make("fedsvrpg-m", small.problem, beta=beta, local_lr=eta, local_steps=1, u0_batches=2)
    ran = run(small, algorithm, rounds)
    agent = jax.tree.map(lambda x: jnp.asarray(x[0, 0]), ran.state.agents)
    world = environment("random-mdp", 5, 5)

    def score_sum(logits, tau):
        pi, gamma, g = softmax_table(logits), 0.9 ** np.arange(6), np.zeros_like(logits)
        for t in range(6):
            s, a = tau.observation[t], tau.action[t]
            score = -pi[s]
            score[a] += 1.0
            g[s] += (gamma[t:] * tau.reward[t:]).sum() * score
        return g

    def draw(key, logits):
        tau = rollout(world, softmax(world), 6, jax.random.split(key, 1)[0], {"logits": jnp.asarray(logits, jnp.float32)}, agent)
        return jax.tree.map(np.asarray, tau)

    theta = np.zeros((5, 5))
    previous = theta
    warm = jax.random.split(agent_key(jax.random.key(0), 0, 0, 0, Purpose.WARMUP), 2)
    u = np.mean([score_sum(theta, draw(key, theta)) for key in warm], axis=0)
    for r in range(rounds):
        tau = draw(jax.random.split(agent_key(jax.random.key(0), 0, r, 0), 1)[0], theta)
        old, new = softmax_table(previous), softmax_table(theta)
        w = np.prod([old[s, a] / new[s, a] for s, a in zip(tau.observation, tau.action, strict=True)])
        u = score_sum(theta, tau) + (1 - beta) * (u - w * score_sum(previous, tau))
        previous, theta = theta, theta + eta * u
    np.testing.assert_allclose(ran.shared.params["logits"][0], theta, rtol=2e-4, atol=2e-6)
    np.testing.assert_allclose(ran.shared.direction["logits"][0], u, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("name", ["fedsvrpg-m", "fedhapg-m", "heavy-ball", "pavg"])
def test_recursions_on_quadratics_by_hand(name, float64):
    """Exact gradients g_i = -A_i (theta - c_i): every line of the algorithm written out."""
    beta, eta, steps, rate, rounds = 0.3, 0.1, 3, 0.5, 4
    small = bowl()
    settings = {"local_lr": eta, "global_lr": rate, "local_steps": steps} | ({} if name == "pavg" else {"beta": beta, "u0_batches": 1})
    ran = run(small, make(name, small.problem, **settings), rounds)
    bowls = trees.take(ran.state.agents, 0)

    def g(i, theta):
        return -bowls.curvature[i] @ (theta - bowls.centre[i])

    theta = np.zeros(4)
    previous, u = theta, np.mean([g(i, theta) for i in range(3)], axis=0)
    for _ in range(rounds):
        ends = []
        for i in range(3):
            local = theta
            for _ in range(steps):
                change = g(i, local) - g(i, previous)
                local = (
                    local
                    + eta
                    * {
                        "fedsvrpg-m": beta * g(i, local) + (1 - beta) * (u + change),
                        "fedhapg-m": beta * g(i, local) + (1 - beta) * (u + change),
                        "heavy-ball": g(i, local) + (1 - beta) * u,
                        "pavg": g(i, local),
                    }[name]
                )
            ends.append(local)
        u = np.mean([end - theta for end in ends], axis=0) / (eta * steps)
        previous, theta = theta, theta + rate * u
    np.testing.assert_allclose(ran.shared.params[0], theta, rtol=1e-12)


def test_pooled_reaches_the_common_optimum_pavg_does_not_and_local_only_the_own_ones():
    small = bowl()
    ran = {name: run(small, make(name, small.problem, local_lr=0.1, local_steps=10), 200) for name in ("pooled", "pavg", "local-only")}
    bowls = trees.take(ran["pavg"].state.agents, 0)
    common = np.linalg.solve(bowls.curvature.sum(0), np.einsum("nij,nj->i", bowls.curvature, bowls.centre))
    np.testing.assert_allclose(ran["pooled"].shared.params[0], common, atol=1e-4)
    np.testing.assert_allclose(ran["local-only"].state.rows.agents.params[0], bowls.centre, atol=1e-4)
    assert np.abs(ran["pavg"].shared.params[0] - common).max() > 0.01
    assert ran["pooled"].sim.evaluate(ran["pooled"].state).grad_norm_sq[0] < 1e-6

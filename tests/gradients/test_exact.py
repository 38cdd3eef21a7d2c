"""Exact J and grad J: against enumeration, chains solved by hand, and finite differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from fedpg.envs.tabular import MDP, environment
from fedpg.gradients import exact
from fedpg.policies import categorical, direct, softmax
from helpers import enumeration
from helpers.compare import normal_like
from helpers.enumeration import ACTIONS, DISCOUNT, HORIZON, STATES, softmax_table

pytestmark = pytest.mark.usefixtures("float64")

ENVIRONMENT = environment("tiny", STATES, ACTIONS)
LOGITS = np.array([[0.3, -0.8], [1.1, 0.4]])


@pytest.mark.parametrize("discount", [1.0, DISCOUNT, 0.5])
@pytest.mark.parametrize("ending", [False, True])
def test_finite_horizon_against_enumeration(discount: float, ending: bool) -> None:
    """J = sum over all trajectories of p(tau) sum_h gamma^h r_h."""
    mdp = enumeration.tiny_mdp(ending)
    tau = enumeration.all_trajectories(mdp, ending)
    returns = np.asarray(tau.reward) @ discount ** np.arange(HORIZON)
    expected = enumeration.probabilities(mdp, softmax_table(LOGITS), tau) @ returns
    assert exact.objective(softmax(ENVIRONMENT), {"logits": jnp.asarray(LOGITS)}, mdp, discount, HORIZON) == pytest.approx(
        expected, rel=1e-12
    )


def test_infinite_horizon_is_the_limit_of_long_ones() -> None:
    mdp, pi = enumeration.tiny_mdp(), softmax_table(LOGITS)
    assert exact.value(mdp, pi, DISCOUNT, None) == pytest.approx(float(exact.value(mdp, pi, DISCOUNT, 400)), rel=1e-12)
    assert exact.value(mdp, pi, DISCOUNT, None) != pytest.approx(float(exact.value(mdp, pi, DISCOUNT, 20)), rel=1e-2)


def test_chains_solved_by_hand() -> None:
    """One state: p / (1 - gamma). Two states that alternate, the first paying 1: 1 / (1 - gamma^2), and 1 + gamma^2 for H = 3."""
    one = MDP(jnp.ones((1, 2, 1)), jnp.array([[1.0, 0.0]]), jnp.ones(1))
    assert exact.value(one, jnp.array([[0.3, 0.7]]), 0.8, None) == pytest.approx(0.3 / 0.2)
    swap = MDP(jnp.array([[[0.0, 1.0]], [[1.0, 0.0]]]), jnp.array([[1.0], [0.0]]), jnp.array([1.0, 0.0]))
    assert exact.value(swap, jnp.ones((2, 1)), 0.8, None) == pytest.approx(1.0 / (1.0 - 0.64))
    assert exact.value(swap, jnp.ones((2, 1)), 0.8, 3) == pytest.approx(1.64)


@pytest.mark.parametrize("horizon", [1, 4, None])
@pytest.mark.parametrize("make", [softmax, direct, categorical])
def test_gradient_against_finite_differences(make, horizon: int | None) -> None:
    """Every entry of grad J by a central difference of J."""
    policy, mdp = make(ENVIRONMENT), enumeration.tiny_mdp()
    params = policy.project(normal_like(jax.random.key(1), jax.eval_shape(policy.init, jax.random.key(0)), 0.4))
    flat, unflatten = ravel_pytree(params)

    def objective(x: jax.Array) -> jax.Array:
        return exact.objective(policy, unflatten(x), mdp, DISCOUNT, horizon)

    step = 1e-5
    shifts = step * np.eye(flat.size)
    many = jax.jit(jax.vmap(objective))
    difference = (many(flat + shifts) - many(flat - shifts)) / (2 * step)
    gradient, _ = ravel_pytree(jax.jit(lambda p: exact.gradient(policy, p, mdp, DISCOUNT, horizon))(params))
    assert np.abs(gradient).max() > 1e-3
    np.testing.assert_allclose(gradient, difference, atol=1e-8)


def test_table_is_the_policy() -> None:
    """pi(a|s) for a network on one-hot states: rows sum to 1 and agree with log_prob."""
    policy, mdp = categorical(ENVIRONMENT), enumeration.tiny_mdp()
    params = normal_like(jax.random.key(2), jax.eval_shape(policy.init, jax.random.key(0)))
    table = exact.table(policy, params, mdp)
    np.testing.assert_allclose(table.sum(1), 1.0, rtol=1e-12)
    assert table[1, 0] == pytest.approx(float(jnp.exp(policy.log_prob(params, 1, 0))))
    assert np.abs(table[0] - table[1]).max() > 1e-2

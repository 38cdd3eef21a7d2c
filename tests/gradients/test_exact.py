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
from helpers.compare import random_params
from helpers.enumeration import ACTIONS, DISCOUNT, HORIZON, STATES, softmax_table

pytestmark = pytest.mark.usefixtures("float64")

ENVIRONMENT = environment("tiny", STATES, ACTIONS)
OBJECTIVE = jax.jit(lambda params, mdp, discount: exact.objective(softmax(ENVIRONMENT), params, mdp, discount, HORIZON))
VALUE = jax.jit(exact.value, static_argnums=3)
LOGITS = np.array([[0.3, -0.8], [1.1, 0.4]])


@pytest.mark.parametrize("discount", [1.0, DISCOUNT, 0.5])
@pytest.mark.parametrize("ending", [False, True])
def test_finite_horizon_against_enumeration(discount: float, ending: bool) -> None:
    """J = sum over all trajectories of p(tau) sum_h gamma^h r_h."""
    mdp = enumeration.tiny_mdp(ending)
    tau = enumeration.all_trajectories(mdp, ending)
    returns = np.asarray(tau.reward) @ discount ** np.arange(HORIZON)
    expected = enumeration.probabilities(mdp, softmax_table(LOGITS), tau) @ returns
    objective = OBJECTIVE({"logits": jnp.asarray(LOGITS)}, mdp, discount)
    assert float(objective) == pytest.approx(expected, rel=1e-12)


def test_infinite_horizon_is_the_limit_of_long_ones() -> None:
    mdp, pi = enumeration.tiny_mdp(), softmax_table(LOGITS)
    assert float(VALUE(mdp, pi, DISCOUNT, None)) == pytest.approx(float(VALUE(mdp, pi, DISCOUNT, 400)), rel=1e-12)
    assert float(VALUE(mdp, pi, DISCOUNT, None)) != pytest.approx(float(VALUE(mdp, pi, DISCOUNT, 20)), rel=1e-2)


def test_chains_solved_by_hand() -> None:
    """One state: p / (1 - gamma). Two states that alternate, the first paying 1: 1 / (1 - gamma^2), and 1 + gamma^2 for H = 3."""
    one = MDP(jnp.ones((1, 2, 1)), jnp.array([[1.0, 0.0]]), jnp.ones(1))
    assert float(VALUE(one, jnp.array([[0.3, 0.7]]), 0.8, None)) == pytest.approx(0.3 / 0.2)
    swap = MDP(jnp.array([[[0.0, 1.0]], [[1.0, 0.0]]]), jnp.array([[1.0], [0.0]]), jnp.array([1.0, 0.0]))
    assert float(VALUE(swap, jnp.ones((2, 1)), 0.8, None)) == pytest.approx(1.0 / (1.0 - 0.64))
    assert float(VALUE(swap, jnp.ones((2, 1)), 0.8, 3)) == pytest.approx(1.64)


@pytest.mark.parametrize(("make", "horizon"), [(softmax, 1), (softmax, 4), (softmax, None), (direct, 4), (direct, None), (categorical, 4)])
def test_gradient_against_finite_differences(make, horizon: int | None) -> None:
    """Every entry of grad J by a central difference of J."""
    policy, mdp = make(ENVIRONMENT), enumeration.tiny_mdp()
    params = random_params(policy, 1, 0.4)
    flat, unflatten = ravel_pytree(params)

    def objective(x: jax.Array) -> jax.Array:
        return exact.objective(policy, unflatten(x), mdp, DISCOUNT, horizon)

    step = 1e-5
    shifts = step * np.eye(flat.size)

    @jax.jit
    def both(flat: jax.Array) -> tuple[jax.Array, jax.Array]:
        difference = (jax.vmap(objective)(flat + shifts) - jax.vmap(objective)(flat - shifts)) / (2 * step)
        return ravel_pytree(exact.gradient(policy, unflatten(flat), mdp, DISCOUNT, horizon))[0], difference

    gradient, difference = both(flat)
    assert np.abs(gradient).max() > 1e-3
    np.testing.assert_allclose(gradient, difference, atol=1e-8)


def test_table_is_the_policy() -> None:
    """pi(a|s) for a network on one-hot states: rows sum to 1 and agree with log_prob."""
    policy, mdp = categorical(ENVIRONMENT), enumeration.tiny_mdp()
    params = random_params(policy, 2, 1.0)
    table = jax.jit(lambda p: exact.table(policy, p, mdp))(params)
    np.testing.assert_allclose(table.sum(1), 1.0, rtol=1e-12)
    assert table[1, 0] == pytest.approx(float(jnp.exp(policy.log_prob(params, 1, 0))))
    assert np.abs(table[0] - table[1]).max() > 1e-2

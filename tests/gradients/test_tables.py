"""Occupancy, values and advantages of a policy in a finite MDP, against plain loops over time in double precision."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.gradients.exact import tables, value
from helpers.enumeration import softmax_table, tiny_mdp

DISCOUNT = 0.8
LOGITS = np.array([[0.4, -0.3], [0.1, 0.9]])


def by_hand(mdp, pi, horizon, temperature):
    """x and Q from d_t forward and Q_t backward, H steps."""
    transition, start = np.asarray(mdp.transition), np.asarray(mdp.start)
    reward, log_pi = np.asarray(mdp.reward), np.log(pi)
    later, left = np.zeros(2), []
    for _ in range(horizon):
        q = reward + DISCOUNT * transition @ later
        later = (pi * (q - temperature * log_pi)).sum(1)
        left.append(q)
    where, occupancy, weighted = start, np.zeros(2), np.zeros((2, 2))
    for t in range(horizon):
        share = DISCOUNT**t * where
        occupancy, weighted = occupancy + share, weighted + share[:, None] * left[horizon - 1 - t]
        where = where @ np.einsum("sa,sat->st", pi, transition)
    return occupancy, weighted / occupancy[:, None]


@pytest.mark.parametrize("temperature", [0.0, 0.3])
@pytest.mark.parametrize("horizon", [4, None])
def test_tables_are_sums_over_time(horizon, temperature, float64):
    mdp, pi = tiny_mdp(), softmax_table(LOGITS)
    found = jax.jit(lambda log_pi: tables(mdp, log_pi, DISCOUNT, horizon, temperature))(jnp.log(pi))
    occupancy, values = by_hand(mdp, pi, horizon or 200, temperature)
    np.testing.assert_allclose(found.probabilities, pi, rtol=1e-12)
    np.testing.assert_allclose(found.occupancy, occupancy, rtol=1e-9)
    np.testing.assert_allclose(found.values, values, rtol=1e-9)
    soft = values - temperature * np.log(pi)
    np.testing.assert_allclose(found.advantages, soft - (pi * soft).sum(1, keepdims=True), atol=1e-9)


@pytest.mark.parametrize("horizon", [4, None])
def test_occupancy_times_values_is_the_slope_of_the_objective_in_the_policy(horizon, float64):
    """Up to a constant in each state: only differences between actions keep a policy a policy."""
    mdp, pi, h = tiny_mdp(), softmax_table(LOGITS), 1e-5
    found = tables(mdp, jnp.log(pi), DISCOUNT, horizon)
    slope = np.asarray(found.occupancy)[:, None] * np.asarray(found.values)
    for s in range(2):
        towards = np.zeros((2, 2))
        towards[s] = [1.0, -1.0]
        up, down = (float(value(mdp, jnp.asarray(pi + sign * h * towards), DISCOUNT, horizon)) for sign in (1, -1))
        np.testing.assert_allclose((up - down) / (2 * h), slope[s, 0] - slope[s, 1], rtol=1e-6)


def test_a_state_that_is_never_visited_has_no_advantage():
    """Within a horizon; without one Q is that of starting there."""
    mdp = tiny_mdp()._replace(start=jnp.array([1.0, 0.0]), transition=jnp.broadcast_to(jnp.array([1.0, 0.0]), (2, 2, 2)))
    within, without = (tables(mdp, jnp.log(softmax_table(LOGITS)), DISCOUNT, horizon) for horizon in (5, None))
    assert within.occupancy[1] == 0
    np.testing.assert_array_equal(within.advantages[1], 0.0)
    assert float(without.values[1, 1]) > 2.0

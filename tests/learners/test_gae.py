"""Advantages and scaled rewards against numbers computed by hand."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.learners.gae import LARGEST_REWARD, advantages, no_rewards, scale_rewards
from helpers import numpy_ppo

NO, YES = False, True


def test_by_hand_with_termination_truncation_and_a_rollout_that_goes_on(float64):
    """gamma = lambda = 1/2, V = 1 everywhere, V(s') = 8: delta = r + 4 - 1, without the 4 after termination."""
    found = advantages(
        jnp.array([1.0, 2.0, 3.0, 4.0, 5.0]),
        jnp.ones(5),
        jnp.full(5, 8.0),
        jnp.array([NO, YES, NO, NO, NO]),
        jnp.array([NO, YES, NO, YES, NO]),  # the fourth step is truncated, the fifth is the last of the rollout
        0.5,
        0.5,
    )
    # delta = 4, 1, 6, 7, 8; from the back: 8 | 7 | 6 + 7/4 | 1 | 4 + 1/4
    assert found.tolist() == [4.25, 1.0, 7.75, 7.0, 8.0]


def test_lambda_one_is_the_discounted_return_with_what_follows_its_truncation(float64):
    reward, value, following = jnp.array([1.0, 1.0, 1.0]), jnp.array([0.3, 0.2, 0.1]), jnp.array([0.2, 0.1, 10.0])
    for terminated, left in ((YES, 0.0), (NO, 10.0)):
        last = jnp.array([NO, NO, terminated])
        found = advantages(reward, value, following, last, jnp.array([NO, NO, YES]), 0.9, 1.0)
        returns = [1 + 0.9 + 0.81 + 0.729 * left, 1 + 0.9 + 0.81 * left, 1 + 0.9 * left]
        np.testing.assert_allclose(found + value, returns, rtol=1e-12)


def test_any_rollout_equals_a_loop(float64):
    rng = np.random.default_rng(0)
    reward, value, following = rng.normal(size=(3, 40))
    terminated = rng.random(40) < 0.1
    ended = terminated | (rng.random(40) < 0.1)
    found = advantages(*map(jnp.asarray, (reward, value, following, terminated, ended)), 0.97, 0.9)
    np.testing.assert_allclose(found, numpy_ppo.advantages(reward, value, following, terminated, ended, 0.97, 0.9), atol=1e-12)


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return_so_far(float64):
    """Two rollouts of one lane; running returns 1, 2.5, then after an end 4, and 2 + 4/2 = 4 in the next rollout."""
    first, scale = scale_rewards(no_rewards(1), jnp.array([[1.0, 2.0, 4.0]]), jnp.array([[NO, YES, NO]]), 0.5)
    np.testing.assert_allclose(first, np.array([[1.0, 2.0, 4.0]]) / np.std([1.0, 2.5, 4.0]), rtol=1e-7)
    second, scale = scale_rewards(scale, jnp.array([[2.0]]), jnp.array([[NO]]), 0.5)
    np.testing.assert_allclose(second, [[2.0 / np.std([1.0, 2.5, 4.0, 4.0])]], rtol=1e-7)
    assert scale.running.tolist() == [4.0]


def test_rewards_that_never_differ_stay_small():
    found, _ = scale_rewards(no_rewards(1), jnp.ones((1, 1)), jnp.ones((1, 1), bool), 0.9)
    assert float(found[0, 0]) == pytest.approx(LARGEST_REWARD)

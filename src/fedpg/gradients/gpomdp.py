"""The policy gradient of one trajectory.

    G_t       = sum_{h>=t} gamma^h r_h
    g(tau|th) = sum_t (G_t - gamma^t b(s_t, t)) grad log pi_th(a_t|s_t)

Without the factor gamma^t of every term, as most implementations have it, G_t becomes sum_{h>=t} gamma^(h-t) r_h and gamma^t b becomes b.
Late steps then count as much as early ones, and g is no longer an unbiased estimate of the gradient of J.

Reference: Baxter & Bartlett, "Infinite-horizon policy-gradient estimation", 2001; section 3 of the paper.
"""

import jax
import jax.numpy as jnp

from fedpg.gradients.rollout import Trajectory, log_probs
from fedpg.policies.base import Policy
from fedpg.trees import Params


def discounts(discount: float, horizon: int) -> jax.Array:
    """gamma^t for t = 0 .. H-1, (H,)."""
    return jnp.power(discount, jnp.arange(horizon))


def suffix_sums(values: jax.Array) -> jax.Array:
    """sum_{h>=t} values_h for every t, (H,)."""
    return jnp.cumsum(values[::-1])[::-1]


def returns_to_go(reward: jax.Array, discount: float) -> jax.Array:
    """G_t, discounted from time 0. Shape (H,).

    >>> returns_to_go(jnp.array([1.0, 2.0, 4.0]), 0.5).tolist()
    [3.0, 2.0, 1.0]
    """
    return suffix_sums(discounts(discount, reward.shape[0]) * reward)


def targets(reward: jax.Array, discount: float) -> jax.Array:
    """The return-to-go sum_{h>=t} gamma^(h-t) r_h, discounted from time t, (H,). Baselines predict it.

    Computed as a product with a triangular matrix: G_t / gamma^t underflows for long horizons, and a loop is slow on a GPU.
    """
    steps = jnp.arange(reward.shape[0])
    later = steps[None, :] - steps[:, None]
    return jnp.where(later >= 0, jnp.power(discount, jnp.maximum(later, 0)), 0.0) @ reward


def coefficients(trajectory: Trajectory, baseline: jax.Array, discount: float, time_discount: bool = True) -> jax.Array:
    """The coefficients of grad log pi(a_t|s_t): c_t = G_t - gamma^t b_t, zero after the end. Shape (H,).

    `time_discount` = False drops the factor gamma^t.
    """
    if not time_discount:
        return (targets(trajectory.reward, discount) - baseline) * trajectory.mask
    horizon = trajectory.reward.shape[0]
    return (returns_to_go(trajectory.reward, discount) - discounts(discount, horizon) * baseline) * trajectory.mask


def surrogate(policy: Policy, params: Params, trajectory: Trajectory, coefficient: jax.Array) -> jax.Array:
    """sum_t coefficient_t log pi(a_t|s_t): its gradient in params, coefficients held, is the estimator. Shape ()."""
    return jnp.sum(coefficient * log_probs(policy, params, trajectory))

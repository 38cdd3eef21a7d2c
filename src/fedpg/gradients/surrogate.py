"""What a batch says about policies near the one it was drawn with: the clipped surrogate, and divergences where it has been.

    surrogate   mean over trajectories of sum_t clip(pi_th(a_t|s_t) / pi_b(a_t|s_t), 1e-8, 10) c_t
    divergence  mean over the states visited of KL(pi_b(.|s) || pi_th(.|s)), and of its square root

with b the behaviour, c_t = G_t - gamma^t b(s_t, t) the coefficients of g. The gradient of the surrogate at th = b is g.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.policies.base import Policy
from fedpg.trees import Params, add_scaled, subtract

SMALLEST, LARGEST = 1e-8, 10.0
"""Where ratios are cut, as in FedKL's code."""
LEAST = 1e-8
"""A divergence below this counts as this under the square root, whose slope would be infinite at 0."""


class Surrogate(NamedTuple):
    """Attributes:
    value: of the surrogate, ().
    length: how many steps a trajectory has on average; without sampling sum_t gamma^t, ().
    largest: max |c_t| of any step; for tables of visits of the mean over a cell's visits, ().
    """

    value: jax.Array
    length: jax.Array
    largest: jax.Array


class Divergence(NamedTuple):
    """Attributes:
    mean: of KL over states, ().
    root: mean of sqrt(max(KL, 1e-8)), ().
    """

    mean: jax.Array
    root: jax.Array


def clipped(log_ratio: jax.Array) -> jax.Array:
    """The ratio within [1e-8, 10]; cut before it is taken out of the logarithm, so that its gradient is 0 beyond and never nan."""
    return jnp.exp(jnp.clip(log_ratio, jnp.log(SMALLEST), jnp.log(LARGEST)))


def of_visits(log_ratio: jax.Array, coefficient: jax.Array, count: jax.Array) -> Surrogate:
    """The surrogate of B trajectories from what each left in every cell, a cell being a step or a (state, action).

    Args:
        log_ratio: log pi_th - log pi_b in every cell, (B, ...) or the same for all trajectories, (...).
        coefficient: the sum of c_t over the visits of a cell, (B, ...).
        count: those visits, (B, ...).
    """
    trajectories = count.shape[0]
    value, steps = jnp.sum(clipped(log_ratio) * coefficient), jnp.sum(count)
    return Surrogate(value / trajectories, steps / trajectories, jnp.max(jnp.abs(coefficient) / jnp.maximum(count, 1)))


def averaged(divergences: jax.Array, visits: jax.Array) -> Divergence:
    """The means of divergences, weighted by the visits of each state; both of one shape."""
    share = visits / jnp.maximum(jnp.sum(visits), jnp.finfo(visits.dtype).tiny)
    divergences = jnp.where(visits > 0, divergences, 0.0)
    return Divergence(jnp.sum(share * divergences), jnp.sum(share * jnp.sqrt(jnp.maximum(divergences, LEAST))))


def table_divergence(log_p: jax.Array, log_q: jax.Array) -> jax.Array:
    """KL of every row of two (S, A) tables of log probabilities, (S,)."""
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=1)


def moving(policy: Policy, params: Params) -> Params:
    """`params`, through which gradients reach only what they may move (not the scale of observations)."""
    held: Any = jax.lax.stop_gradient(params)
    return add_scaled(held, 1.0, policy.free(subtract(params, held)))

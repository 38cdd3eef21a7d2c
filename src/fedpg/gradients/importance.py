"""Importance weights, in log space, and the weighted gradient F they give.

    w(tau|th',th)    = prod_t pi_th'(a_t|s_t) / pi_th(a_t|s_t)
    F(th'; tau, th)  = w(tau|th',th) g(tau|th')             E_{tau~th} F(th') = grad J(th') for every th'

Kinds of weight:
    trajectory       the full product above: the paper
    prefix           reward r_h (and baseline b_h) weighted by the product up to h only: unbiased, lower variance
    truncated        min(w, cap): biased, bounded
    self-normalised  w divided by the batch's mean weight: consistent; with one trajectory per batch it is 1
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpg.gradients.gpomdp import coefficients, discounts, suffix_sums
from fedpg.gradients.rollout import Trajectory

KINDS = ("trajectory", "prefix", "truncated", "self-normalised")
LARGEST_LOG = 80.0
"""Weights above e^80 would overflow float32; they are cut there and show up as an effective sample size of 1/n."""


class Weights(NamedTuple):
    """Sums over trajectories from which mean, max and effective sample size of w are computed; they add up.

    Attributes:
        count: number of weights.
        total: sum of w. Here w is cut at e^40, so that squares stay finite.
        squares: sum of w^2. The effective sample size is total^2 / squares, at most count.
        largest: max of w.
    """

    count: jax.Array
    total: jax.Array
    squares: jax.Array
    largest: jax.Array


def weight(log_ratio: jax.Array) -> jax.Array:
    """w from the (H,) log ratios of one trajectory, ()."""
    return jnp.exp(jnp.minimum(jnp.sum(log_ratio), LARGEST_LOG))


def weighted_coefficients(
    trajectory: Trajectory, log_ratio: jax.Array, baseline: jax.Array, discount: float, kind: str, cap: float
) -> jax.Array:
    """What multiplies grad log pi_th'(a_t|s_t) in F, for one trajectory. Shape (H,).

    Self-normalised weights are a matter of the whole batch: they come out as `trajectory` here, see `normaliser`.
    """
    if kind == "prefix":
        prefix = jnp.exp(jnp.minimum(jnp.cumsum(log_ratio), LARGEST_LOG)) * trajectory.mask
        gamma = discounts(discount, trajectory.reward.shape[0])
        return suffix_sums(prefix * gamma * trajectory.reward) - prefix * gamma * baseline
    w = weight(log_ratio)
    if kind == "truncated":
        w = jnp.minimum(w, cap)
    return w * coefficients(trajectory, baseline, discount)


def normaliser(log_ratios: jax.Array, kind: str) -> jax.Array | float:
    """What a batch's mean of F is divided by: its mean weight if self-normalised, else 1. `log_ratios` is (B, H)."""
    return jnp.mean(jax.vmap(weight)(log_ratios)) if kind == "self-normalised" else 1.0


def statistics(log_ratios: jax.Array) -> Weights:
    """The sums of a batch of (B, H) log ratios."""
    w = jnp.exp(jnp.minimum(jnp.sum(log_ratios, axis=-1), LARGEST_LOG / 2))
    return Weights(jnp.asarray(w.size, w.dtype), jnp.sum(w), jnp.sum(w * w), jnp.max(w))

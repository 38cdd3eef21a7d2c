"""Importance weights, in log space, and the weighted gradient F they give.

    w(tau|th',th)    = prod_t pi_th'(a_t|s_t) / pi_th(a_t|s_t)
    F(th'; tau, th)  = w(tau|th',th) g(tau|th')             E_{tau~th} F(th') = grad J(th') for every th'

Kinds of weight:
    trajectory       the full product above: the paper
    prefix           reward r_h (and baseline b_h) weighted by the product up to h only: unbiased, lower variance
    truncated        min(w, cap): biased, bounded
    truncated-prefix both: the product up to h, at most cap
    self-normalised  w divided by the batch's mean weight: consistent; with one trajectory per batch it is 1
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpg.gradients.gpomdp import discounts, suffix_sums, targets
from fedpg.gradients.rollout import Trajectory

KINDS = ("trajectory", "prefix", "truncated", "truncated-prefix", "self-normalised")
PREFIX_KINDS = ("prefix", "truncated-prefix")
LIMITED_KINDS = ("trajectory", "truncated")
"""Weights that are the full product up to a `limit`."""
LARGEST_LOG = 60.0
"""Weights are capped at e^60, so that products with returns do not overflow float32."""


class Weights(NamedTuple):
    """Statistics of importance weights, from which their mean, maximum and effective sample size follow; they add up."""

    count: jax.Array  # number of weights
    total: jax.Array  # sum of w, here capped at e^40, so that squares stay finite
    squares: jax.Array  # sum of w^2; the effective sample size is total^2 / squares, at most count
    largest: jax.Array  # max of w


def log_weights(log_ratios: jax.Array, kind: str, cap: float) -> jax.Array:
    """log w of every trajectory of a batch, from its (B, H) log ratios; for all but `PREFIX_KINDS`. Shape (B,)."""
    log_w = jnp.sum(log_ratios, axis=-1)
    if kind == "truncated":
        log_w = jnp.minimum(log_w, jnp.log(cap))
    elif kind == "self-normalised":
        log_w = log_w - (jax.nn.logsumexp(log_w) - math.log(log_w.shape[0]))
    return jnp.minimum(log_w, LARGEST_LOG)


def limit(kind: str, cap: float) -> float:
    """The largest log w of one of `LIMITED_KINDS`."""
    return min(LARGEST_LOG, math.log(cap)) if kind == "truncated" else LARGEST_LOG


def prefix_coefficients(
    trajectory: Trajectory,
    log_ratio: jax.Array,
    baseline: jax.Array,
    discount: float,
    largest_log: float = LARGEST_LOG,
    time_discount: bool = True,
) -> jax.Array:
    """The coefficients of grad log pi_th'(a_t|s_t) in F with prefix weights of at most e^largest_log, for one trajectory. Shape (H,).

    `time_discount` = False drops the factor gamma^t.
    """
    prefix = jnp.exp(jnp.minimum(jnp.cumsum(log_ratio), largest_log)) * trajectory.mask
    if not time_discount:
        return targets(prefix * trajectory.reward, discount) - prefix * baseline
    weighted = prefix * discounts(discount, trajectory.reward.shape[0])
    return suffix_sums(weighted * trajectory.reward) - weighted * baseline


def statistics(log_ratios: jax.Array) -> Weights:
    """The statistics of a batch, from its (B, H) log ratios."""
    w = jnp.exp(jnp.minimum(jnp.sum(log_ratios, axis=-1), 40.0))
    return Weights(jnp.asarray(w.size, w.dtype), jnp.sum(w), jnp.sum(w * w), jnp.max(w))

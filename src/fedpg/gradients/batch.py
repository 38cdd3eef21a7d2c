"""g and F averaged over a batch of trajectories, in one backward pass."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpg.gradients import importance
from fedpg.gradients.baselines import targets
from fedpg.gradients.gpomdp import coefficients, surrogate
from fedpg.gradients.importance import Weights
from fedpg.gradients.rollout import Trajectory, log_probs
from fedpg.policies.base import Policy
from fedpg.trees import Params


class Batch(NamedTuple):
    """B trajectories and what was known about them when they were drawn.

    Attributes:
        trajectory: leading axis B.
        baseline: b(s_t, t), (B, H).
        scale: factor on every coefficient, (); 1 unless advantages are normalised.
    """

    trajectory: Trajectory
    baseline: jax.Array
    scale: jax.Array


def normalise_advantages(batch: Batch, discount: float) -> Batch:
    """Standardises R_t - b_t over the executed steps of the batch: a shift of the baseline and a scale. Biased."""
    mask = batch.trajectory.mask
    count = jnp.maximum(jnp.sum(mask), 1.0)
    returns = jax.vmap(targets, (0, None))(batch.trajectory.reward, discount)
    advantage = returns - batch.baseline
    mean = jnp.sum(mask * advantage) / count
    variance = jnp.sum(mask * jnp.square(advantage - mean)) / count
    # Where all advantages are equal the deviation is rounding noise, which must not be blown up to order 1.
    rounding = 1e-5 * jnp.max(mask * (jnp.abs(returns) + jnp.abs(batch.baseline)))
    return batch._replace(baseline=batch.baseline + mean, scale=1.0 / (jnp.sqrt(variance) + rounding + 1e-8))


def _ascent(policy: Policy, params: Params, batch: Batch, coefficient: jax.Array) -> Params:
    """The mean over the batch of sum_t coefficient_t grad log pi(a_t|s_t); coefficients (B, H) are held."""

    def mean_surrogate(params: Params) -> jax.Array:
        return jnp.mean(jax.vmap(surrogate, (None, None, 0, 0))(policy, params, batch.trajectory, coefficient))

    return jax.grad(mean_surrogate)(params)


def gradient(policy: Policy, params: Params, batch: Batch, discount: float) -> Params:
    """Mean of g(tau | params)."""
    coefficient = jax.vmap(coefficients, (0, 0, None))(batch.trajectory, batch.baseline, discount)
    return _ascent(policy, params, batch, batch.scale * coefficient)


def log_ratios(policy: Policy, params: Params, behaviour: Params, batch: Batch) -> jax.Array:
    """log pi_params - log pi_behaviour of every executed step, (B, H)."""
    each = jax.vmap(log_probs, (None, None, 0))
    return each(policy, params, batch.trajectory) - each(policy, behaviour, batch.trajectory)


def weighted_gradient(
    policy: Policy, params: Params, behaviour: Params, batch: Batch, discount: float, kind: str = "trajectory", cap: float = 2.0
) -> tuple[Params, Weights]:
    """Mean of F(params; tau, behaviour), differentiable in params through the weight as well as through g."""
    ratios = log_ratios(policy, params, behaviour, batch)
    if kind in importance.PREFIX_KINDS:
        largest_log = jnp.log(cap) if kind == "truncated-prefix" else importance.LARGEST_LOG
        each = jax.vmap(importance.prefix_coefficients, (0, 0, 0, None, None))
        coefficient = each(batch.trajectory, ratios, batch.baseline, discount, largest_log)
    else:
        w = jnp.exp(importance.log_weights(ratios, kind, cap))
        coefficient = w[:, None] * jax.vmap(coefficients, (0, 0, None))(batch.trajectory, batch.baseline, discount)
    return _ascent(policy, params, batch, batch.scale * coefficient), importance.statistics(ratios)

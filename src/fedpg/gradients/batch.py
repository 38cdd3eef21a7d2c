"""g and F averaged over a batch of trajectories, in one backward pass: the estimator for any environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import moments
from fedpg.envs.base import Environment
from fedpg.envs.host import HostEnvironment
from fedpg.gradients import baselines, importance
from fedpg.gradients.baselines import targets
from fedpg.gradients.estimator import Choices, Estimator, Usage
from fedpg.gradients.gpomdp import coefficients, surrogate
from fedpg.gradients.host_rollout import host_rollouts
from fedpg.gradients.importance import Weights
from fedpg.gradients.rollout import Trajectory, log_probs, rollout
from fedpg.gradients.surrogate import Divergence, Surrogate, averaged, of_visits
from fedpg.policies import distributions
from fedpg.policies.base import Policy
from fedpg.policies.distributions import Outputs
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


def near(policy: Policy, params: Params, behaviour: Params, batch: Batch, discount: float) -> Surrogate:
    """The clipped surrogate of a batch drawn with `behaviour`."""
    coefficient = batch.scale * jax.vmap(coefficients, (0, 0, None))(batch.trajectory, batch.baseline, discount)
    return of_visits(log_ratios(policy, params, behaviour, batch), coefficient, batch.trajectory.mask)


def divergence(outputs: Outputs, params: Params, other: Params, batch: Batch) -> Divergence:
    """KL(pi_other || pi_params) in the states of a batch."""
    each = jax.vmap(jax.vmap(lambda seen: distributions.divergence(outputs(other, seen), outputs(params, seen))))
    return averaged(each(batch.trajectory.observation), batch.trajectory.mask)


def trajectories(
    environment: Environment | HostEnvironment, policy: Policy, horizon: int, keys: jax.Array, params: Params, agent: Any
) -> Trajectory:
    """One trajectory for each of `keys`, leading axis B."""
    if isinstance(environment, HostEnvironment):
        return host_rollouts(environment, policy, horizon, keys, params, agent)
    return jax.vmap(lambda k: rollout(environment, policy, horizon, k, params, agent))(keys)


def estimator(
    environment: Environment | HostEnvironment, policy: Policy, choices: Choices, draw: Callable[..., Trajectory] = trajectories
) -> Estimator:
    """Samples are a `Batch` of what `draw` (called like `trajectories`) drew; the memory is the baseline's state."""
    fitted = baselines.make(choices.baseline, environment, choices.horizon)
    discount = choices.discount
    outputs = distributions.outputs_of(policy, environment.action_space)

    def sample(key: jax.Array, params: Params, agent: Any, memory: Any) -> tuple[Batch, Any]:
        keys = jax.random.split(key, choices.batch_size)
        tau = draw(environment, policy, choices.horizon, keys, params, agent)
        values = jax.vmap(fitted.predict, (None, 0))(memory, tau)
        drawn = Batch(tau, values, jnp.ones(()))
        memory = fitted.update(memory, tau, jax.vmap(targets, (0, None))(tau.reward, discount))
        return normalise_advantages(drawn, discount) if choices.normalise_advantages else drawn, memory

    def usage(drawn: Batch) -> Usage:
        tau = drawn.trajectory
        seen = ()
        if choices.watch_observations:
            seen = moments.observed(tau.observation.reshape(tau.mask.size, -1), tau.mask.reshape(-1))
        return Usage(jnp.asarray(tau.reward.shape[0]), jnp.sum(tau.mask).astype(int), jnp.sum(tau.reward), seen)

    return Estimator(
        init_memory=fitted.init,
        sample=sample,
        gradient=lambda drawn, params: gradient(policy, params, drawn, discount),
        weighted_gradient=lambda drawn, params, behaviour: weighted_gradient(
            policy, params, behaviour, drawn, discount, choices.weights, choices.weight_cap
        ),
        usage=usage,
        surrogate=lambda drawn, params, behaviour: near(policy, params, behaviour, drawn, discount),
        divergence=outputs and (lambda drawn, params, other: divergence(outputs, params, other, drawn)),
    )

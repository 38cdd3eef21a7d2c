"""The gradient estimates of the code that was published with the paper, as it runs. See docs/algorithms/authors-mode.md.

    l_t(th)   = log likelihood of a_t; of the action 0 at the observation 0 after the end of a trajectory, where the code pads
    Adv_t     = sum_{h>=t} gamma^(h-t) r_h, less its mean over the trajectory, divided by its standard deviation there
    w         = exp(sum_t l_t(th) - l_t(behaviour)) over all H steps, padding included; cut to an interval
    weighted  = grad of the mean over executed steps of all trajectories of w Adv_t l_t(th), w held
    score     = grad of the mean over executed steps of l_t(th): no rewards

With the bug, likelihoods of discrete actions come from logits x_t(a) that went through a softmax over *time* first and were then
normalised over actions: l_t = log softmax_a(x_t(a) - log sum_h exp x_h(a)). Sampling never has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpg.gradients import importance
from fedpg.gradients.baselines import targets
from fedpg.gradients.batch import Batch
from fedpg.gradients.importance import Weights
from fedpg.gradients.rollout import Trajectory
from fedpg.policies.base import Policy
from fedpg.sampling import look_up
from fedpg.trees import Params

EPSILON = 1e-8
"""Added to the variance of a trajectory's advantages."""


class Published(NamedTuple):
    """Attributes:
    weighted: (sample, params, behaviour, lowest, highest) -> the weighted gradient with w in [lowest, highest], and Weights.
    score: (sample, params) -> the mean score.
    free: `Policy.free`.
    """

    weighted: Callable[[Batch, Params, Params, float, float], tuple[Params, Weights]]
    score: Callable[[Batch, Params], Params]
    free: Callable[[Params], Params]


def whitened(trajectory: Trajectory, discount: float) -> jax.Array:
    """Adv_t of one trajectory, 0 after its end, (H,)."""
    mask = trajectory.mask
    returns, count = targets(trajectory.reward, discount), jnp.maximum(jnp.sum(mask), 2.0)
    apart = mask * (returns - jnp.sum(mask * returns) / jnp.sum(mask))
    return apart / jnp.sqrt(jnp.sum(jnp.square(apart)) / (count - 1.0) + EPSILON)


def padded(trajectory: Trajectory) -> Trajectory:
    """With zeros for observations and actions after the end."""

    def zeroed(values: jax.Array) -> jax.Array:
        mask = trajectory.mask.reshape(trajectory.mask.shape + (1,) * (values.ndim - 1))
        return jnp.where(mask > 0, values, jnp.zeros_like(values))

    return trajectory._replace(observation=zeroed(trajectory.observation), action=zeroed(trajectory.action))


def likelihoods(policy: Policy, softmax_bug: bool, params: Params, trajectory: Trajectory) -> jax.Array:
    """l_t of one padded trajectory, (H,)."""
    logits = jax.vmap(policy.outputs, (None, 0))(params, trajectory.observation) if policy.outputs else None
    if softmax_bug and isinstance(logits, jax.Array):
        over_time = logits - jax.nn.logsumexp(logits, axis=0)
        return jax.vmap(look_up)(jax.nn.log_softmax(over_time, axis=1), trajectory.action)
    return jax.vmap(policy.log_prob, (None, 0, 0))(params, trajectory.observation, trajectory.action)


def published(policy: Policy, discount: float, softmax_bug: bool) -> Published:
    """The estimates for samples that are a `Batch`; the bug touches only policies with logits."""

    def each(params: Params, tau: Trajectory) -> jax.Array:
        return jax.vmap(likelihoods, (None, None, None, 0))(policy, softmax_bug, params, jax.vmap(padded)(tau))

    def ascent(params: Params, tau: Trajectory, coefficient: jax.Array) -> Params:
        executed = tau.mask / jnp.sum(tau.mask)
        return policy.free(jax.grad(lambda at: jnp.sum(executed * coefficient * each(at, tau)))(params))

    def weighted(drawn: Batch, params: Params, behaviour: Params, lowest: float, highest: float) -> tuple[Params, Weights]:
        tau = drawn.trajectory
        ratios = each(params, tau) - each(behaviour, tau)
        w = jnp.exp(jnp.clip(jnp.sum(ratios, axis=1), jnp.log(lowest), jnp.log(highest)))
        advantage = jax.vmap(whitened, (0, None))(tau, discount)
        return ascent(params, tau, w[:, None] * advantage), importance.statistics(ratios)

    def score(drawn: Batch, params: Params) -> Params:
        return ascent(params, drawn.trajectory, jnp.ones_like(drawn.trajectory.mask))

    return Published(weighted, score, policy.free)

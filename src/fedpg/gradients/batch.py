"""The estimator for any environment: g and F averaged over a batch of trajectories, in one backward pass.

    g(tau|th)       = sum_t c_t grad log pi_th(a_t|s_t)         c_t = G_t - gamma^t b(s_t, t)
    F(th'; tau, th) = w(tau|th',th) g(tau|th')

`fedpg.gradients.tabular` computes the same from visit counts, for small finite MDPs.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import moments, trees
from fedpg.envs.base import Environment
from fedpg.envs.host import HostEnvironment
from fedpg.gradients import baselines, importance, lanes
from fedpg.gradients.gpomdp import coefficients, surrogate, targets
from fedpg.gradients.host_rollout import host_rollouts
from fedpg.gradients.importance import Weights
from fedpg.gradients.rollout import Trajectory, log_probs, rollout
from fedpg.policies.base import Policy
from fedpg.trees import Params


@dataclasses.dataclass(frozen=True)
class Choices:
    """How gradients are estimated."""

    horizon: int  # H, the most steps of a trajectory
    discount: float  # gamma, counted from time 0
    batch_size: int = 1  # trajectories per sample
    baseline: str = "none"  # b(s_t, t), one of `baselines.NAMES`
    normalise_advantages: bool = False  # standardise advantages over each batch
    importance: str = "trajectory"  # kind of importance weight, one of `importance.KINDS`
    weight_cap: float = 2.0  # upper bound of truncated importance weights
    watch_observations: bool = False  # report the moments of the observations with the usage of a sample
    time_discount: bool = True  # the factor gamma^t of the term of step t


class Usage(NamedTuple):
    """The cost and the return of a sample; usages add up."""

    trajectories: jax.Array  # number of trajectories, ()
    env_steps: jax.Array  # executed steps, ()
    total_return: jax.Array  # sum of undiscounted returns, ()
    observations: Any = ()  # `Moments` of the observations; () unless `Choices.watch_observations`


def total_usage(usages: Usage) -> Usage:
    """Adds up usages along their leading axis."""
    seen = moments.merge(usages.observations) if usages.observations else ()
    return Usage(*(jnp.sum(x, axis=0) for x in usages[:3]), seen)


class Estimator(NamedTuple):
    """Pure functions for one agent that draw samples and estimate g and F from them, with signatures as in `Problem`.

    `gradient` is the mean of g(tau|params) over the sample, `weighted_gradient` the mean of F(params; tau, behaviour), which is
    differentiable in params through the weight as well as through g.
    """

    init_memory: Callable[[], Any]
    sample: Callable[[jax.Array, Params, Any, Any], tuple[Any, Any]]
    gradient: Callable[[Any, Params], Params]
    weighted_gradient: Callable[[Any, Params, Params], tuple[Params, Weights]]
    usage: Callable[[Any], Usage]


class Batch(NamedTuple):
    """B trajectories, with the baseline as it was when they were drawn."""

    trajectory: Trajectory  # leading axis B
    baseline: jax.Array  # b(s_t, t), (B, H)
    scale: jax.Array  # factor on every coefficient, (); 1 unless advantages are normalised


Draw = Callable[[jax.Array, Params, Any], Trajectory]
"""(keys, params, agent) -> one trajectory per key, leading axis B."""


def sampler(environment: Environment | HostEnvironment, policy: Policy, horizon: int) -> Draw:
    """The function that draws trajectories of `policy` in `environment`."""
    if isinstance(environment, HostEnvironment):
        return functools.partial(host_rollouts, environment, policy, horizon)
    if lanes.applies(environment, policy):
        return lanes.sampler(environment, policy, horizon)
    return jax.vmap(functools.partial(rollout, environment, policy, horizon), (0, None, None))


def normalise_advantages(batch: Batch, discount: float) -> Batch:
    """Standardises R_t - b_t over the executed steps of the batch, by a shift of the baseline and a scale. Biased."""
    mask = batch.trajectory.mask
    count = jnp.maximum(jnp.sum(mask), 1.0)
    returns = jax.vmap(targets, (0, None))(batch.trajectory.reward, discount)
    advantage = returns - batch.baseline
    mean = jnp.sum(mask * advantage) / count
    variance = jnp.sum(mask * jnp.square(advantage - mean)) / count
    # Where all advantages are equal the deviation is rounding noise, which must not be scaled up to order 1.
    rounding = 1e-5 * jnp.max(mask * (jnp.abs(returns) + jnp.abs(batch.baseline)))
    return batch._replace(baseline=batch.baseline + mean, scale=1.0 / (jnp.sqrt(variance) + rounding + 1e-8))


def batch_coefficients(batch: Batch, discount: float, time_discount: bool = True) -> jax.Array:
    """c_t of every step, without `Batch.scale`, (B, H)."""
    each = functools.partial(coefficients, discount=discount, time_discount=time_discount)
    return jax.vmap(each)(batch.trajectory, batch.baseline)


def log_ratios(policy: Policy, params: Params, behaviour: Params, batch: Batch) -> jax.Array:
    """log pi_params - log pi_behaviour of every executed step, (B, H)."""
    if lanes.has_network(policy):
        known = lanes.scorer(policy).log_probs
        return known(params, batch.trajectory) - known(behaviour, batch.trajectory)
    each = jax.vmap(log_probs, (None, None, 0))
    return each(policy, params, batch.trajectory) - each(policy, behaviour, batch.trajectory)


def _ascent(policy: Policy, params: Params, batch: Batch, coefficient: jax.Array) -> Params:
    """The mean over the batch of sum_t coefficient_t grad log pi(a_t|s_t); coefficients (B, H) are held."""
    if lanes.has_network(policy):
        return trees.mean_axis0(lanes.scorer(policy).score(params, batch.trajectory, coefficient)[0])

    def mean_surrogate(params: Params) -> jax.Array:
        return jnp.mean(jax.vmap(surrogate, (None, None, 0, 0))(policy, params, batch.trajectory, coefficient))

    return jax.grad(mean_surrogate)(params)


def gradient(policy: Policy, params: Params, batch: Batch, discount: float, time_discount: bool = True) -> Params:
    """Mean of g(tau | params)."""
    return _ascent(policy, params, batch, batch.scale * batch_coefficients(batch, discount, time_discount))


def weighted_gradient(
    policy: Policy,
    params: Params,
    behaviour: Params,
    batch: Batch,
    discount: float,
    kind: str = "trajectory",
    cap: float = 2.0,
    time_discount: bool = True,
) -> tuple[Params, Weights]:
    """Mean of F(params; tau, behaviour), differentiable in params through the weight as well as through g."""
    if lanes.has_network(policy) and kind not in importance.PREFIX_KINDS:
        return _weighted_by_lanes(policy, params, behaviour, batch, batch_coefficients(batch, discount, time_discount), kind, cap)
    ratios = log_ratios(policy, params, behaviour, batch)
    if kind in importance.PREFIX_KINDS:
        largest_log = jnp.log(cap) if kind == "truncated-prefix" else importance.LARGEST_LOG
        each = functools.partial(importance.prefix_coefficients, discount=discount, largest_log=largest_log, time_discount=time_discount)
        coefficient = jax.vmap(each)(batch.trajectory, ratios, batch.baseline)
    else:
        w = jnp.exp(importance.log_weights(ratios, kind, cap))
        coefficient = w[:, None] * batch_coefficients(batch, discount, time_discount)
    return _ascent(policy, params, batch, batch.scale * coefficient), importance.statistics(ratios)


def _weighted_by_lanes(
    policy: Policy, params: Params, behaviour: Params, batch: Batch, coefficient: jax.Array, kind: str, cap: float
) -> tuple[Params, Weights]:
    """`weighted_gradient` for weights of whole trajectories, whose gradients then need no weight beforehand."""
    scorer = lanes.scorer(policy)
    each, found = scorer.score(params, batch.trajectory, batch.scale * coefficient)
    ratios = found - scorer.log_probs(behaviour, batch.trajectory)
    w = jnp.exp(importance.log_weights(ratios, kind, cap))
    return jax.tree.map(lambda g: jnp.tensordot(w, g, 1) / len(w), each), importance.statistics(ratios)


def estimator(environment: Environment | HostEnvironment, policy: Policy, choices: Choices, draw: Draw | None = None) -> Estimator:
    """The estimator whose samples are a `Batch` and whose memory is the state of the baseline.

    `draw` draws the trajectories; None is `sampler(environment, policy, choices.horizon)`.
    """
    draw = draw or sampler(environment, policy, choices.horizon)
    fitted = baselines.make(choices.baseline, environment, choices.horizon)
    discount = choices.discount

    def sample(key: jax.Array, params: Params, agent: Any, memory: Any) -> tuple[Batch, Any]:
        tau = draw(jax.random.split(key, choices.batch_size), params, agent)
        batch = Batch(tau, jax.vmap(fitted.predict, (None, 0))(memory, tau), jnp.ones(()))
        memory = fitted.update(memory, tau, jax.vmap(targets, (0, None))(tau.reward, discount))
        return normalise_advantages(batch, discount) if choices.normalise_advantages else batch, memory

    def usage(batch: Batch) -> Usage:
        tau, seen = batch.trajectory, ()
        if choices.watch_observations:
            seen = moments.observed(tau.observation.reshape(tau.mask.size, -1), tau.mask.reshape(-1))
        return Usage(jnp.asarray(tau.reward.shape[0]), jnp.sum(tau.mask).astype(int), jnp.sum(tau.reward), seen)

    return Estimator(
        init_memory=fitted.init,
        sample=sample,
        gradient=lambda batch, params: gradient(policy, params, batch, discount, choices.time_discount),
        weighted_gradient=lambda batch, params, behaviour: weighted_gradient(
            policy, params, behaviour, batch, discount, choices.importance, choices.weight_cap, choices.time_discount
        ),
        usage=usage,
    )

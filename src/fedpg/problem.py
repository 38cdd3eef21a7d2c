"""What an algorithm sees of reinforcement learning: samples, gradients, nothing else.

An algorithm is written against `Problem`. It never looks inside a sample, so a problem may keep trajectories, visit counts
or, like `fedpg.quadratic`, no reinforcement learning at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import moments
from fedpg.envs.base import Environment, space_size
from fedpg.envs.host import HostEnvironment
from fedpg.envs.tabular import MDP
from fedpg.errors import choose, require
from fedpg.gradients import baselines, batch, exact, hvp, importance
from fedpg.gradients.gpomdp import returns_to_go
from fedpg.gradients.host_rollout import host_rollouts
from fedpg.gradients.importance import Weights
from fedpg.gradients.rollout import Trajectory, rollout
from fedpg.policies.base import Policy
from fedpg.trees import Params


class Usage(NamedTuple):
    """What a sample cost and earned; usages add up.

    Attributes:
        trajectories: number of trajectories, ().
        env_steps: executed steps, ().
        total_return: sum of undiscounted returns, ().
        observations: the moments of what was seen; () where nobody asks for them.
    """

    trajectories: jax.Array
    env_steps: jax.Array
    total_return: jax.Array
    observations: Any = ()


def total_usage(usages: Usage) -> Usage:
    """Adds up usages along their leading axis."""
    seen = moments.merge(usages.observations) if usages.observations else ()
    return Usage(*(jnp.sum(x, axis=0) for x in usages[:3]), seen)


class Evaluation(NamedTuple):
    """How good params are for one agent.

    Attributes:
        total_return: undiscounted, ().
        objective: J_i, discounted, ().
        gradient: grad J_i, like params; () where it cannot be computed exactly.
    """

    total_return: jax.Array
    objective: jax.Array
    gradient: Any


class Problem(NamedTuple):
    """Pure functions for one agent.

    Attributes:
        init_params: key -> params.
        init_memory: () -> memory, what sampling learns and keeps with the agent (its baseline).
        sample: (key, params, agent, memory) -> sample, memory. One batch at params.
        gradient: (sample, params) -> g at params; unbiased for grad J_i if sampled there.
        weighted_gradient: (sample, params, behaviour) -> F(params; sample, behaviour), Weights.
        hessian_vector: (sample, params, vector) -> Lambda; the sample was drawn at params.
        usage: sample -> Usage.
        evaluate: (key, params, agent) -> Evaluation.
        project: params -> allowed params.
        step_floats: numbers in one recorded environment step: what would travel if trajectories did.
    """

    init_params: Callable[[jax.Array], Params]
    init_memory: Callable[[], Any]
    sample: Callable[[jax.Array, Params, Any, Any], tuple[Any, Any]]
    gradient: Callable[[Any, Params], Params]
    weighted_gradient: Callable[[Any, Params, Params], tuple[Params, Weights]]
    hessian_vector: Callable[[Any, Params, Params], Params]
    usage: Callable[[Any], Usage]
    evaluate: Callable[[jax.Array, Params, Any], Evaluation]
    project: Callable[[Params], Params]
    step_floats: int


def policy_gradient(
    environment: Environment | HostEnvironment,
    policy: Policy,
    *,
    horizon: int,
    discount: float,
    batch_size: int = 1,
    baseline: str = "none",
    normalise_advantages: bool = False,
    weights: str = "trajectory",
    weight_cap: float = 2.0,
    eval_episodes: int = 32,
    watch_observations: bool = False,
) -> Problem:
    """The reinforcement-learning problem of the paper, with its practical options.

    Args:
        environment: what the agents live in.
        policy: what they learn.
        horizon: H, the most steps of a trajectory.
        discount: gamma, counted from time 0.
        batch_size: trajectories per local step (the paper: 1).
        baseline: b(s_t, t): none (the paper), time, linear, value.
        normalise_advantages: standardise advantages over each batch (biased).
        weights: importance weights: trajectory (the paper), prefix, truncated, truncated-prefix, self-normalised.
        weight_cap: where truncated weights are cut.
        eval_episodes: episodes per agent of an evaluation; finite MDPs are evaluated exactly instead.
        watch_observations: report the moments of what was seen with the usage of a sample.
    """
    require(horizon >= 1 and batch_size >= 1, "horizon and batch must be at least 1")
    require(0.0 < discount <= 1.0, f"discount must be in (0, 1], not {discount}")
    require(weight_cap > 1.0, f"weight-cap must be above 1, not {weight_cap}: every weight is 1 on its own policy")
    choose("weights", weights, importance.KINDS)
    require(weights != "self-normalised" or batch_size > 1, "self-normalised weights need a batch of at least 2: that of one is always 1")
    fitted = baselines.make(baseline, environment, horizon)

    def trajectories(key: jax.Array, params: Params, agent: Any, count: int) -> Trajectory:
        keys = jax.random.split(key, count)
        if isinstance(environment, HostEnvironment):
            return host_rollouts(environment, policy, horizon, keys, params, agent)
        return jax.vmap(lambda k: rollout(environment, policy, horizon, k, params, agent))(keys)

    def sample(key: jax.Array, params: Params, agent: Any, memory: Any) -> tuple[batch.Batch, Any]:
        tau = trajectories(key, params, agent, batch_size)
        values = jax.vmap(fitted.predict, (None, 0))(memory, tau)
        drawn = batch.Batch(tau, values, jnp.ones(()))
        memory = fitted.update(memory, tau, jax.vmap(baselines.targets, (0, None))(tau.reward, discount))
        return batch.normalise_advantages(drawn, discount) if normalise_advantages else drawn, memory

    def weighted_gradient(drawn: batch.Batch, params: Params, behaviour: Params) -> tuple[Params, Weights]:
        g, statistics = batch.weighted_gradient(policy, params, behaviour, drawn, discount, weights, weight_cap)
        return policy.free(g), statistics

    def usage(drawn: batch.Batch) -> Usage:
        tau = drawn.trajectory
        seen = ()
        if watch_observations:
            seen = moments.observed(tau.observation.reshape(tau.mask.size, -1), tau.mask.reshape(-1))
        return Usage(jnp.asarray(tau.reward.shape[0]), jnp.sum(tau.mask).astype(int), jnp.sum(tau.reward), seen)

    def evaluate_exactly(key: jax.Array, params: Params, mdp: MDP) -> Evaluation:
        return Evaluation(
            exact.objective(policy, params, mdp, 1.0, horizon),
            exact.objective(policy, params, mdp, discount, horizon),
            exact.gradient(policy, params, mdp, discount, horizon),
        )

    def evaluate_episodes(key: jax.Array, params: Params, agent: Any) -> Evaluation:
        reward = trajectories(key, params, agent, eval_episodes).reward
        discounted = jax.vmap(returns_to_go, (0, None))(reward, discount)[:, 0]
        return Evaluation(jnp.mean(jnp.sum(reward, axis=1)), jnp.mean(discounted), ())

    def evaluate(key: jax.Array, params: Params, agent: Any) -> Evaluation:
        return (evaluate_exactly if isinstance(agent, MDP) else evaluate_episodes)(key, params, agent)

    return Problem(
        init_params=policy.init,
        init_memory=fitted.init,
        sample=sample,
        gradient=lambda drawn, params: policy.free(batch.gradient(policy, params, drawn, discount)),
        weighted_gradient=weighted_gradient,
        hessian_vector=lambda drawn, params, vector: policy.free(
            hvp.hessian_vector(policy, params, vector, drawn, discount, weights, weight_cap)
        ),
        usage=usage,
        evaluate=evaluate,
        project=policy.project,
        step_floats=space_size(environment.observation_space) + space_size(environment.action_space) + 1,
    )

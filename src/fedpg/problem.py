"""What an algorithm sees of reinforcement learning: samples, gradients, nothing else.

An algorithm is written against `Problem`. It never looks inside a sample, so a problem may keep trajectories, visit counts
or, like `fedpg.quadratic`, no reinforcement learning at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.algorithms.wrappers import suspects
from fedpg.envs.base import Environment, space_size
from fedpg.envs.host import HostEnvironment
from fedpg.envs.tabular import MDP, is_tabular
from fedpg.errors import choose, require
from fedpg.gradients import batch, exact, hvp, importance, visits
from fedpg.gradients.estimator import Choices, Usage, total_usage
from fedpg.gradients.exact import Exact
from fedpg.gradients.gpomdp import returns_to_go
from fedpg.gradients.importance import Weights
from fedpg.gradients.published import Published, published
from fedpg.gradients.surrogate import Divergence, Surrogate, moving
from fedpg.policies.base import Policy
from fedpg.trees import Params

__all__ = ["Evaluation", "Problem", "Usage", "policy_gradient", "total_usage"]


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

    Not every problem has the rest; it is None then:
        exact: tables of a finite MDP, see `fedpg.gradients.exact`.
        surrogate, divergence: (sample, params, other) -> what the sample says about params near those it was drawn with, and how
            far pi_params is from pi_other, see `fedpg.gradients.surrogate`.
        published: softmax_bug -> the estimates of the paper's published code, see `fedpg.gradients.published`.
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
    exact: Exact | None = None
    surrogate: Callable[[Any, Params, Params], Surrogate] | None = None
    divergence: Callable[[Any, Params, Params], Divergence] | None = None
    published: Callable[[bool], Published] | None = None


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
    attackable: bool = False,
) -> Problem:
    """The reinforcement-learning problem of the paper, with its practical options.

    A sample is a batch of trajectories, or of visit counts where those suffice: the same estimates, several times faster.

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
        attackable: agents are each a `Suspect`, which may lie about its trajectories; evaluations are of the true environments.
    """
    require(horizon >= 1 and batch_size >= 1, "horizon and batch must be at least 1")
    require(0.0 < discount <= 1.0, f"discount must be in (0, 1], not {discount}")
    require(weight_cap > 1.0, f"weight-cap must be above 1, not {weight_cap}: every weight is 1 on its own policy")
    choose("weights", weights, importance.KINDS)
    require(weights != "self-normalised" or batch_size > 1, "self-normalised weights need a batch of at least 2: that of one is always 1")
    choices = Choices(horizon, discount, batch_size, baseline, normalise_advantages, weights, weight_cap, watch_observations)
    kept = visits if visits.applies(environment, policy, choices) and not attackable else batch
    more = (suspects.trajectories,) if attackable else ()
    estimator = kept.estimator(environment, policy, choices, *more)

    def weighted_gradient(drawn: Any, params: Params, behaviour: Params) -> tuple[Params, Weights]:
        f, statistics = estimator.weighted_gradient(drawn, params, behaviour)
        return policy.free(f), statistics

    def hessian_vector(drawn: Any, params: Params, vector: Params) -> Params:
        return hvp.hessian_vector(lambda at, behaviour: weighted_gradient(drawn, at, behaviour)[0], params, vector)

    def evaluate_exactly(key: jax.Array, params: Params, mdp: MDP) -> Evaluation:
        return Evaluation(
            exact.objective(policy, params, mdp, 1.0, horizon),
            exact.objective(policy, params, mdp, discount, horizon),
            exact.gradient(policy, params, mdp, discount, horizon),
        )

    def evaluate_episodes(key: jax.Array, params: Params, agent: Any) -> Evaluation:
        keys = jax.random.split(key, eval_episodes)
        reward = batch.trajectories(environment, policy, horizon, keys, params, agent).reward
        discounted = jax.vmap(returns_to_go, (0, None))(reward, discount)[:, 0]
        return Evaluation(jnp.mean(jnp.sum(reward, axis=1)), jnp.mean(discounted), ())

    def evaluate(key: jax.Array, params: Params, agent: Any) -> Evaluation:
        agent = agent.constants if attackable else agent
        return (evaluate_exactly if isinstance(agent, MDP) else evaluate_episodes)(key, params, agent)

    return Problem(
        init_params=policy.init,
        init_memory=estimator.init_memory,
        sample=estimator.sample,
        gradient=lambda drawn, params: policy.free(estimator.gradient(drawn, params)),
        weighted_gradient=weighted_gradient,
        hessian_vector=hessian_vector,
        usage=estimator.usage,
        evaluate=evaluate,
        project=policy.project,
        step_floats=space_size(environment.observation_space) + space_size(environment.action_space) + 1,
        exact=exact.exact(policy, discount, horizon) if is_tabular(environment) and not attackable else None,
        surrogate=lambda drawn, params, behaviour: estimator.surrogate(drawn, moving(policy, params), behaviour),
        published=(lambda bug: published(policy, discount, bug)) if kept is batch else None,
        divergence=estimator.divergence and (lambda drawn, params, other: estimator.divergence(drawn, moving(policy, params), other)),
    )

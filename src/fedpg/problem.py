"""The `Problem` contract: all that an algorithm sees of reinforcement learning is samples, gradients and evaluations.

An algorithm is written against `Problem` and never looks inside a sample. So a problem may keep trajectories, visit counts or,
like `fedpg.quadratic`, involve no reinforcement learning at all.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.envs.base import Environment, Federation
from fedpg.envs.host import HostEnvironment
from fedpg.envs.tabular import MDP, is_tabular
from fedpg.errors import choose, require
from fedpg.gradients import batch, exact, hvp, tabular
from fedpg.gradients.batch import Choices, Usage, total_usage
from fedpg.gradients.dishonest import sampler as dishonest_sampler
from fedpg.gradients.exact import Exact
from fedpg.gradients.gpomdp import returns_to_go
from fedpg.gradients.importance import KINDS, Weights
from fedpg.learners.actor_critic import Settings, check
from fedpg.learners.actor_critic import learner as make_learner
from fedpg.learners.reinforce import Direction
from fedpg.policies.base import Policy
from fedpg.policies.distributions import mode, outputs_of
from fedpg.trees import Params

DEFAULTS = Settings()

__all__ = ["Evaluation", "Problem", "Usage", "actor_critic", "exact_policy_gradient", "policy_gradient", "total_usage"]


class Evaluation(NamedTuple):
    """The evaluation of params in one agent's environment.

    Attributes:
        total_return: undiscounted, ().
        objective: J_i, discounted, ().
        gradient: grad J_i, like params; () where it cannot be computed exactly.
        deterministic: undiscounted return of the most likely actions, (); () if it was not measured.
    """

    total_return: jax.Array
    objective: jax.Array
    gradient: Any
    deterministic: Any = ()


class Problem(NamedTuple):
    """A learning problem as pure functions for one agent.

    Attributes:
        init_params: key -> params.
        init_memory: () -> memory, what sampling learns and keeps with the agent (its baseline).
        sample: (key, params, agent, memory) -> sample, memory. One batch at params.
        gradient: (sample, params) -> g at params; unbiased for grad J_i if the sample was drawn there. None: only directions are known.
        usage: sample -> Usage.
        evaluate: (key, params, agent) -> Evaluation.
        project: params -> the nearest allowed params.
        weighted_gradient: (sample, params, behaviour) -> F(params; sample, behaviour), Weights. None if there are no weights.
        hessian_vector: (sample, params, vector) -> Lambda; the sample was drawn at params. None if there is no Hessian.
        direction: (key, sample, params, memory, tilt, local_lr) -> Moved, memory: what the learner makes of a sample that was drawn
            at params, see `fedpg.learners`. None is `reinforce`: the gradient, tilted.
        exact: tables of a finite MDP, see `fedpg.gradients.exact`. None elsewhere.
        trajectories: () -> the same problem with whole trajectories (a `Batch`) for samples. None if nothing is sampled.
        pooled: N -> the problem of one learner that holds N agents, if that is not the mean of their gradients. None: it is.
        environment: what the agents act in. None if the problem is not about policies.
        policy: what they learn. None likewise.
        discount: gamma. None likewise.
        start: trained params to start from, leading axis seeds (repeated if there are more); None: those of init_params.
    """

    init_params: Callable[[jax.Array], Params]
    init_memory: Callable[[], Any]
    sample: Callable[[jax.Array, Params, Any, Any], tuple[Any, Any]]
    gradient: Callable[[Any, Params], Params] | None
    usage: Callable[[Any], Usage]
    evaluate: Callable[[jax.Array, Params, Any], Evaluation]
    project: Callable[[Params], Params]
    weighted_gradient: Callable[[Any, Params, Params], tuple[Params, Weights]] | None = None
    hessian_vector: Callable[[Any, Params, Params], Params] | None = None
    direction: Direction | None = None
    exact: Exact | None = None
    trajectories: Callable[[], "Problem"] | None = None
    pooled: Callable[[int], "Problem"] | None = None
    environment: Environment | HostEnvironment | None = None
    policy: Policy | None = None
    discount: float | None = None
    start: Params | None = None


def policy_gradient(
    environment: Environment | HostEnvironment,
    policy: Policy,
    *,
    horizon: int,
    discount: float,
    batch_size: int = 1,
    baseline: str = "none",
    normalise_advantages: bool = False,
    importance: str = "trajectory",
    weight_cap: float = 2.0,
    eval_episodes: int = 32,
    eval_deterministic: bool = False,
    watch_observations: bool = False,
    dishonest: bool = False,
    count_visits: bool = True,
    time_discount: bool = True,
) -> Problem:
    """The reinforcement-learning problem of the paper, with its practical options.

    A sample is a batch of trajectories, or of visit counts where those suffice: the same estimates, several times faster.

    Args:
        environment: what the agents act in.
        policy: what they learn.
        horizon: H, the most steps of a trajectory.
        discount: gamma, counted from time 0.
        batch_size: trajectories per local step (the paper: 1).
        baseline: b(s_t, t): none (the paper), time, linear, value.
        normalise_advantages: standardise advantages over each batch (biased).
        importance: kind of importance weight: trajectory (the paper), prefix, truncated, truncated-prefix, self-normalised.
        weight_cap: where truncated weights are cut.
        eval_episodes: episodes per agent of an evaluation; finite MDPs are evaluated exactly instead.
        eval_deterministic: evaluate the most likely actions too, in as many episodes, where the policy's distribution is known.
        watch_observations: report the moments of the observations with the usage of a sample.
        dishonest: agents may misreport their trajectories, see `fedpg.attack`; evaluations use their true environments.
        count_visits: keep visit counts instead of trajectories where they suffice.
        time_discount: the factor gamma^t of the term of step t (the paper). Without it late steps count as much as early ones.
    """
    require(horizon >= 1 and batch_size >= 1, "horizon and batch must be at least 1")
    require(0.0 < discount <= 1.0, f"discount must be in (0, 1], not {discount}")
    require(weight_cap > 1.0, f"weight-cap must be above 1, not {weight_cap}: every weight is 1 on its own policy")
    choose("weights", importance, KINDS)
    require(importance != "self-normalised" or batch_size > 1, "self-normalised weights need a batch of at least 2: with 1 they are all 1")
    choices = Choices(
        horizon, discount, batch_size, baseline, normalise_advantages, importance, weight_cap, watch_observations, time_discount
    )
    counted = count_visits and not dishonest and tabular.applies(environment, policy, choices)
    if counted:
        estimator = tabular.estimator(environment, policy, choices)
    else:
        draw = dishonest_sampler(environment, policy, horizon) if dishonest else None
        estimator = batch.estimator(environment, policy, choices, draw)

    def weighted_gradient(sample: Any, params: Params, behaviour: Params) -> tuple[Params, Weights]:
        f, statistics = estimator.weighted_gradient(sample, params, behaviour)
        return policy.free(f), statistics

    def hessian_vector(sample: Any, params: Params, vector: Params) -> Params:
        return hvp.hessian_vector(lambda at, behaviour: weighted_gradient(sample, at, behaviour)[0], params, vector)

    measure = _evaluation(environment, policy, horizon, discount, eval_episodes, eval_deterministic)

    def evaluate(key: jax.Array, params: Params, agent: Any) -> Evaluation:
        return measure(key, params, agent.constants if dishonest else agent)

    problem = Problem(
        init_params=policy.init,
        init_memory=estimator.init_memory,
        sample=estimator.sample,
        gradient=lambda sample, params: policy.free(estimator.gradient(sample, params)),
        usage=estimator.usage,
        evaluate=evaluate,
        project=policy.project,
        weighted_gradient=weighted_gradient,
        hessian_vector=hessian_vector,
        exact=exact.exact(policy, discount, horizon) if is_tabular(environment) and not dishonest else None,
        environment=environment,
        policy=policy,
        discount=discount,
    )

    def with_trajectories() -> Problem:
        if not counted:
            return problem
        return policy_gradient(
            environment,
            policy,
            **vars(choices),
            eval_episodes=eval_episodes,
            eval_deterministic=eval_deterministic,
            count_visits=False,
        )

    return problem._replace(trajectories=with_trajectories)


def actor_critic(
    federation: Federation,
    policy: Policy,
    settings: Settings = DEFAULTS,
    *,
    horizon: int,
    discount: float,
    rollout_steps: int = 256,
    lanes: int = 1,
    batches: int = 0,
    eval_episodes: int = 32,
    watch_observations: bool = False,
) -> Problem:
    """The same problem with the actor-critic for a learner, see `fedpg.learners.actor_critic`. It has directions, but no gradients.

    Args:
        federation: what the agents act in.
        policy: what they learn, with a critic: `policies.make(..., critic=(64, 64))`.
        settings: of the learner.
        horizon: H, the most steps of an episode.
        discount: gamma.
        rollout_steps: T, steps of a lane per local step; episodes go on in the next.
        lanes: environments of every agent side by side.
        batches: local steps after which the schedule of the step-size ends; 0: it is constant.
        eval_episodes: episodes per agent of an evaluation; finite MDPs are evaluated exactly instead.
        watch_observations: report the moments of the observations with the usage of a sample.
    """
    require(min(horizon, rollout_steps, lanes) >= 1, "horizon, rollout-steps and batch must be at least 1")
    require(0.0 < discount <= 1.0, f"discount must be in (0, 1], not {discount}")
    require(policy.value is not None, "the actor-critic needs a policy with a critic: policies.make(..., critic=(64, 64))")
    environment = federation.environment
    known = settings.entropy == 0 or outputs_of(policy, environment.action_space) is not None
    require(known, "an entropy bonus needs a policy whose distribution is known: leave out the learner-option entropy")

    def held(pooled: int) -> Problem:
        learner = make_learner(
            federation, policy, check(settings), horizon=horizon, discount=discount, rollout_steps=rollout_steps, lanes=lanes,
            batches=batches, watch_observations=watch_observations, pooled=pooled,
        )  # fmt: skip
        return Problem(
            init_params=policy.init,
            **learner._asdict(),
            gradient=None,
            evaluate=_evaluation(environment, policy, horizon, discount, eval_episodes, True),
            project=policy.project,
            environment=environment,
            policy=policy,
            discount=discount,
        )

    return held(0)._replace(pooled=held)


def _evaluation(
    environment: Environment | HostEnvironment, policy: Policy, horizon: int, discount: float, count: int, deterministic: bool
) -> Callable[[jax.Array, Params, Any], Evaluation]:
    """(key, params, agent) -> Evaluation, exactly for finite MDPs and in `count` episodes elsewhere."""
    episodes = batch.sampler(environment, policy, horizon)
    outputs = outputs_of(policy, environment.action_space) if deterministic else None

    def act(noise: Any, params: Params, observation: jax.Array) -> jax.Array:
        return mode(outputs(params, observation), environment.action_space)

    most_likely = batch.sampler(environment, policy._replace(act=act, draw=lambda key, n: jnp.zeros(n)), horizon)

    def evaluate(key: jax.Array, params: Params, agent: Any) -> Evaluation:
        if isinstance(agent, MDP):
            return _evaluate_exactly(policy, params, agent, discount, horizon)
        keys = jax.random.split(key, count)
        reward = episodes(keys, params, agent).reward
        discounted = jax.vmap(returns_to_go, (0, None))(reward, discount)[:, 0]
        certain = () if outputs is None else jnp.mean(jnp.sum(most_likely(keys, params, agent).reward, axis=1))
        return Evaluation(jnp.mean(jnp.sum(reward, axis=1)), jnp.mean(discounted), (), certain)

    return evaluate


def _evaluate_exactly(policy: Policy, params: Params, mdp: MDP, discount: float, horizon: int | None) -> Evaluation:
    """The evaluation of a finite MDP without sampling; without a horizon the undiscounted sum may not exist and J takes its place."""
    objective = exact.objective(policy, params, mdp, discount, horizon)
    total_return = objective if horizon is None else exact.objective(policy, params, mdp, 1.0, horizon)
    return Evaluation(total_return, objective, exact.gradient(policy, params, mdp, discount, horizon))


def exact_policy_gradient(environment: Environment, policy: Policy, *, discount: float, horizon: int | None = None) -> Problem:
    """The problem for `MDP` agents with exact gradients: where an algorithm comes to rest without noise.

    A sample is the MDP itself. Its gradient at any params is grad J_i there, so every importance weight is 1 and Lambda is the
    Hessian times v.

    Args:
        environment: a finite MDP, see `fedpg.envs.tabular`.
        policy: what is learned.
        discount: gamma.
        horizon: H; None is the infinite sum.
    """

    def gradient(mdp: MDP, params: Params) -> Params:
        return policy.free(exact.gradient(policy, params, mdp, discount, horizon))

    def hessian_vector(mdp: MDP, params: Params, vector: Params) -> Params:
        return jax.jvp(lambda at: gradient(mdp, at), (params,), (vector,))[1]

    one, none = jnp.ones(()), jnp.zeros((), int)
    return Problem(
        init_params=policy.init,
        init_memory=lambda: (),
        sample=lambda key, params, mdp, memory: (mdp, memory),
        gradient=gradient,
        usage=lambda mdp: Usage(none, none, jnp.zeros(())),
        evaluate=lambda key, params, mdp: _evaluate_exactly(policy, params, mdp, discount, horizon),
        project=policy.project,
        weighted_gradient=lambda mdp, params, behaviour: (gradient(mdp, params), Weights(one, one, one, one)),
        hessian_vector=hessian_vector,
        exact=exact.exact(policy, discount, horizon),
        environment=environment,
        policy=policy,
        discount=discount,
    )

"""Policies for agents that a run with personal heads has not seen: the best head that there is, or what the agent learns from the trunk.

    head      the mean of the trained heads, or the one of them that does better on average over the training agents
    critic    a new one, because policy files hold none; it learns alone on the first batches, since an untrained critic misleads the policy
    policy    then all layers learn too, from the common ones and the mean head, with the learner of the run
    choice    the head or the learned policy, whichever has the higher return in a few further episodes

Learning starts from the mean head because a single head may be sure of what is wrong here. An agent ends below the best head only by the
noise of those episodes.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import trees
from fedpg.algorithms.local_only import local_only
from fedpg.algorithms.personal import own_parts
from fedpg.errors import require
from fedpg.learners.reinforce import Moved, Tilt
from fedpg.policies import make
from fedpg.problem import Problem
from fedpg.runs.evaluation import CHOICE, Place, Trained, best_mode, better, evaluate, place
from fedpg.runs.policy_files import config_of, names, params_of, with_critics
from fedpg.runs.setup import make_problem
from fedpg.simulate import simulator
from fedpg.trees import Params

CRITIC_ALONE = 4
"""The critic learns alone on one batch of so many, rounded up."""
TRIES = 2
"""Episodes of an unseen agent with the best head, and as many with its own policy."""
TRIALS = 20
"""Episodes of each head on all training agents together, and at least one on each: they cost unseen agents nothing."""


class Fitted(NamedTuple):
    """Policies, one for every agent of a place, and the most environment steps that an agent used for its own.

    Episodes of the choice count with the whole horizon.
    """

    trained: Trained
    place: Place
    steps: int


def has_heads(trained: Trained) -> bool:
    """Whether its agents share all layers but the last."""
    return config_of(trained.spec).personal == "heads"


def mean_head(trained: Trained) -> Trained:
    """The policies of `trained` with one head for all agents, the mean of theirs: axes (S, 1)."""
    # The common layers stay as they are to the last bit: their differences are zeros.
    mean = jax.tree.map(lambda x: x[:, :1] + (x - x[:, :1]).mean(1, keepdims=True), trained.params)
    return trained._replace(params=mean)


def best_head(trained: Trained) -> Trained:
    """The policies of `trained` with one head for all agents: the mean of theirs, or one of theirs if it is better on average over the
    training agents. Axes (S, 1)."""
    mean = mean_head(trained)
    if trained.count == 1:
        return mean
    all_heads = trained._replace(params=jax.tree.map(lambda *each: jnp.concatenate(each, axis=1), mean.params, trained.params))
    where = place(trained.spec)
    tries = evaluate(all_heads, where, episodes=math.ceil(TRIALS / where.count), how=best_mode(trained), matrix=True, seed=CHOICE)
    best = tries.returns.mean((2, 3)).argmax(1)  # of each seed; the mean head in a tie
    return trained._replace(params=jax.tree.map(lambda x: x[np.arange(len(best)), best][:, None], all_heads.params))


def critic_first(problem: Problem, batches: int) -> Problem:
    """`problem` with the actor-critic, whose policy stays as it is while the critic learns on the first `batches`."""
    critics = own_parts(jax.eval_shape(problem.init_params, jax.random.key(0)), frozenset({"critic"}))

    def direction(key: jax.Array, sample: Any, params: Params, memory: Any, tilt: Tilt, local_lr: Any) -> tuple[Moved, Any]:
        share = jnp.where(memory.batches < batches, 0.0, 1.0)

        def some(step: Params, at: Params) -> Params:
            return jax.tree.map(lambda critic, x: x if critic else share * x, critics, tilt(step, at))

        return problem.direction(key, sample, params, memory, some, local_lr)

    return problem._replace(direction=direction)


def learned(trained: Trained, where: Place, batches: int, problem: Problem, seed: int) -> tuple[Trained, int]:
    """The policies that every agent of `where` learns by itself, with the step-size of the run, and the most steps that one used."""
    config, agents = config_of(trained.spec), jax.tree.map(jnp.asarray, where.agents)
    algorithm = local_only(problem, local_lr=config.local_lr)
    sim = simulator(problem, algorithm, lambda key, number: trees.take(agents, number), seeds=len(trained.spec.seeds))
    state, info = sim.run(sim.init(jax.random.key(seed)), batches)
    policy = make(trained.spec.policy, where.federation.environment, hidden=config.hidden, scaled=trained.spec.scaled)
    bare = jax.eval_shape(policy.init, jax.random.key(0))
    params = params_of(bare, names(sim.params(state)), trained.name, axes=2)
    return trained._replace(params=params), math.ceil(np.max(info.local.usage.env_steps) / where.count)


def fit(trained: Trained, where: Place, batches: int, episodes: int = TRIES, seed: int = 0) -> Fitted:
    """A policy for every agent of `where`, with the learner of the run.

    Args:
        trained: policies of a run with personal heads.
        where: the agents.
        batches: of every agent, for learning.
        episodes: of every agent with the best head, and as many with the policy that it learned, to choose between them.
        seed: of the trajectories.
    """
    require(batches >= 1, f"fit must be at least 1, not {batches}")
    config, own = config_of(trained.spec), where._replace(training=True)
    problem = make_problem(config, where.federation, "kept" if trained.spec.scaled else "off", batches)
    arrays = {name: array[:, 0] for name, array in names(mean_head(trained).params).items()}
    start = params_of(problem.init_params(jax.random.key(seed)), arrays, trained.name, axes=1)
    if config.learner == "actor-critic":
        problem = critic_first(problem, math.ceil(batches / CRITIC_ALONE))
    moved, steps = learned(trained, where, batches, problem._replace(start=with_critics(start, len(trained.spec.seeds))), seed)
    chosen = better(best_head(trained), moved, own, episodes=episodes, how=best_mode(trained))
    return Fitted(chosen, own, steps + 2 * episodes * where.horizon)

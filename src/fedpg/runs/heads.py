"""Heads for agents that a run has not seen: its common layers stay as they are, and every agent fits its own last layer.

    start     the mean of the trained heads
    critic    a new one, because policy files hold none; it learns alone on the first batches, since an untrained critic misleads the head
    head      then both learn, with the learner of the run
    choice    the start or the fitted head, whichever has the higher return in a few further episodes

A fit therefore ends below its start only by the noise of those episodes.
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
from fedpg.learners.reinforce import Moved, Tilt, along
from fedpg.policies import make
from fedpg.problem import Problem
from fedpg.runs.evaluation import Place, Trained, best_mode, better
from fedpg.runs.policy_files import config_of, names, params_of, with_critics
from fedpg.runs.setup import make_problem
from fedpg.simulate import simulator
from fedpg.trees import Params

CRITIC_ALONE = 4
"""The critic learns alone on one batch of so many, rounded up."""


class Fitted(NamedTuple):
    """Policies with heads, one for every agent of a place, and the most environment steps that an agent used for its own.

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


def only_heads(problem: Problem, critic_batches: int = 0) -> Problem:
    """`problem` whose learner moves nothing but the head and the critic, and the critic alone on the first batches.

    Args:
        problem: with the whole params.
        critic_batches: how many; 0 for learners without a critic.
    """
    learn = problem.direction or along(problem.gradient)
    shapes = jax.eval_shape(problem.init_params, jax.random.key(0))
    heads, critics = (own_parts(shapes, frozenset({part})) for part in ("heads", "critic"))

    def direction(key: jax.Array, sample: Any, params: Params, memory: Any, tilt: Tilt, local_lr: Any) -> tuple[Moved, Any]:
        share = jnp.where(memory.batches < critic_batches, 0.0, 1.0) if critic_batches else 1.0

        def some(step: Params, at: Params) -> Params:
            return jax.tree.map(lambda head, critic, x: x * (share if head else float(critic)), heads, critics, tilt(step, at))

        return learn(key, sample, params, memory, some, local_lr)

    return problem._replace(direction=direction, gradient=None, weighted_gradient=None, hessian_vector=None)


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


def fit(trained: Trained, where: Place, batches: int, episodes: int = 4, seed: int = 0) -> Fitted:
    """A head for every agent of `where`, with the learner of the run.

    Args:
        trained: policies of a run with personal heads.
        where: the agents.
        batches: of every agent, for learning.
        episodes: of every agent with the start, and as many with the fitted head, to choose between them.
        seed: of the trajectories.
    """
    require(batches >= 1, f"fit must be at least 1, not {batches}")
    config, start, own = config_of(trained.spec), mean_head(trained), where._replace(training=True)
    whole = make_problem(config, where.federation, "kept" if trained.spec.scaled else "off", batches)
    arrays = {name: array[:, 0] for name, array in names(start.params).items()}
    params = params_of(whole.init_params(jax.random.key(seed)), arrays, trained.name, axes=1)
    critic_batches = math.ceil(batches / CRITIC_ALONE) if config.learner == "actor-critic" else 0
    problem = only_heads(whole, critic_batches)._replace(start=with_critics(params, len(trained.spec.seeds)))
    moved, steps = learned(trained, where, batches, problem, seed)
    chosen = better(start, moved, own, episodes=episodes, how=best_mode(trained))
    return Fitted(chosen, own, steps + 2 * episodes * where.horizon)

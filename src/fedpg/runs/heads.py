"""Heads for agents that a run has not seen: its common layers stay as they are, and every agent fits its own last layer."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.algorithms.pavg import Shared
from fedpg.algorithms.personal import deploy_own, keep_own, own_parts, split
from fedpg.errors import require
from fedpg.policies import make
from fedpg.problem import Problem
from fedpg.runs.evaluation import Place, Trained
from fedpg.runs.policy_files import config_of, names, params_of, with_critics
from fedpg.runs.setup import make_problem
from fedpg.simulate import simulator
from fedpg.trees import Params


class Fitted(NamedTuple):
    """Policies with fitted heads, one for every agent of a place, and the environment steps that each agent used for it."""

    trained: Trained
    place: Place
    steps: int


def has_heads(trained: Trained) -> bool:
    """Whether its agents share all layers but the last."""
    return config_of(trained.spec).personal == "heads"


def only_heads(problem: Problem, local_lr: Any) -> Algorithm:
    """The algorithm in which agents move what is their own, and nothing is sent; on a problem of `keep_own`."""

    def local_update(key: jax.Array, shared: Shared, memory: Any, agent: Any) -> tuple[tuple[()], Any, LocalInfo]:
        def stay(step: Params, params: Params) -> Params:
            return trees.zeros_like(step)

        _, memory, info = base.sample_direction(problem, key, shared.params, agent, memory, local_lr, stay)
        return (), memory, info

    def aggregate(state: ServerState, messages: Any, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        return state, RoundInfo(jnp.zeros(()), jnp.zeros(()))

    return Algorithm("only-heads", lambda params: (ServerState(Shared(params)), problem.init_memory()), local_update, aggregate)


def fit(trained: Trained, where: Place, batches: int, seed: int = 0) -> Fitted:
    """Fits a head for every agent of `where`, from the mean of the trained heads, with the learner of the run.

    Args:
        trained: policies of a run with personal heads.
        where: the agents.
        batches: of every agent.
        seed: of the trajectories.
    """
    require(batches >= 1, f"fit must be at least 1, not {batches}")
    config, environment = config_of(trained.spec), where.federation.environment
    whole = make_problem(config, where.federation, "kept" if trained.spec.scaled else "off", batches)
    parts = frozenset({"heads", "critic"}) if config.learner == "actor-critic" else frozenset({"heads"})
    template, count = whole.init_params(jax.random.key(seed)), len(trained.spec.seeds)
    mask, arrays = own_parts(template, parts), names(trained.params)

    def started(pick: Any) -> Params:
        picked = {name: pick(np.asarray(array)) for name, array in arrays.items()}
        return with_critics(params_of(template, picked, trained.name, axes=1), count)

    common = split(started(lambda array: array[:, 0]), mask)[0]
    heads = split(started(lambda array: array.mean(1)), mask)[1]
    problem = keep_own(whole, parts)._replace(start=common)
    algorithm = deploy_own(only_heads(problem, config.local_lr), parts)
    agents = jax.tree.map(jnp.asarray, where.agents)
    sim = simulator(problem, algorithm, lambda key, number: trees.take(agents, number), seeds=count)
    state = sim.init(jax.random.key(seed))
    own = jax.tree.map(lambda x: jnp.repeat(x[:, None], where.count, axis=1), heads)
    state = state._replace(rows=state.rows._replace(agents=state.rows.agents._replace(params=own)))
    state, info = sim.run(state, batches)
    policy = make(trained.spec.policy, environment, hidden=config.hidden, scaled=trained.spec.scaled)
    bare = jax.eval_shape(policy.init, jax.random.key(0))
    params = params_of(bare, names(sim.params(state)), trained.name, axes=2)
    steps = round(float(np.mean(info.local.usage.env_steps)) / where.count)
    return Fitted(trained._replace(params=params), where._replace(training=True), steps)

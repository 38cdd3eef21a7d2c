"""What every engine does around an algorithm: start it, settle a round, evaluate. Written for one seed."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Aggregate, Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.algorithms.participation import Who
from fedpg.keys import Purpose, agent_key
from fedpg.problem import Problem, Usage

HEALTHY = -1


class SeedState(NamedTuple):
    """Everything the next round of one seed needs, and what was counted since the last evaluation.

    Attributes:
        server: the algorithm's server state.
        agents: the algorithm's agent states, leading axis N.
        failed: round in which the seed failed (no finite message, or a server state that is not finite), -1 if healthy, ().
        info: costs and weights added up since the last evaluation.
        refused: messages of each participant refused because they were not finite, since the last evaluation, (N,).
        latest: the last round's RoundInfo.
    """

    server: ServerState
    agents: Any
    failed: jax.Array
    info: LocalInfo
    refused: jax.Array
    latest: RoundInfo


class Scores(NamedTuple):
    """How good the deployed params are.

    Attributes:
        total_return: per agent, undiscounted, (N,).
        objective: per agent, J_i, (N,).
        grad_norm_sq: |grad J|^2, (); None where it cannot be computed exactly. Personal params: mean of |grad J_i(th_i)|^2.
        spread: max_i |grad J_i - grad J|^2, (); None likewise.
    """

    total_return: jax.Array
    objective: jax.Array
    grad_norm_sq: jax.Array | None
    spread: jax.Array | None


def no_info() -> LocalInfo:
    count = jnp.zeros((), int)
    return LocalInfo(Usage(count, count, jnp.zeros(())), base.no_weights())


def _spent(infos: LocalInfo, finite: jax.Array) -> LocalInfo:
    """What the participants report, added up: their costs, and what they measured where it is finite."""
    costs = infos.usage
    # Whoever failed cost its trajectories too; its return is taken to be like the others', so that their mean is theirs.
    mean = jnp.sum(jnp.where(finite, costs.total_return, 0.0)) / jnp.maximum(jnp.sum(jnp.where(finite, costs.trajectories, 0)), 1)
    usage = Usage(costs.trajectories, costs.env_steps, jnp.where(finite, costs.total_return, mean * costs.trajectories))
    weights = jax.vmap(trees.select)(finite, infos.weights, trees.zeros_like(infos.weights))
    return base.total(LocalInfo(usage, weights))


def participants(algorithm: Algorithm, agents: Any) -> Any:
    """Who exchanges messages: the N agents, or one place that holds them all. Leading axis N or 1."""
    return jax.tree.map(lambda x: x[None], agents) if algorithm.pooled else agents


def start(problem: Problem, algorithm: Algorithm, root: Any, seed: Any, count: int) -> SeedState:
    """The state before the warm-up, for `count` participants."""
    params = problem.init_params(agent_key(root, seed, 0, 0, Purpose.PARAMS))
    server, agent_state = algorithm.init(params)
    none = jnp.zeros(())
    agents = trees.broadcast(agent_state, count)
    state = SeedState(server, agents, jnp.asarray(HEALTHY), no_info(), jnp.zeros(count, int), RoundInfo(none, none))
    # Strong types from the start: a weakly typed leaf would compile everything a second time after a checkpoint.
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), state)


def settle(
    state: SeedState,
    ids: jax.Array | None,
    messages: Any,
    agents: Any,
    infos: LocalInfo,
    present: jax.Array,
    *,
    count: int,
    aggregate: Aggregate,
) -> tuple[SeedState, jax.Array]:
    """Ends an exchange: refuses messages that are not finite and aggregates the rest.

    Args:
        state: before the exchange.
        ids: the m participants among the N agents, (m,), None for everyone; the others have weight 0, and stay as they are.
        messages, agents, infos: what the participants' local updates returned, leading axis m.
        present: whether nothing of a participant was refused in this round so far, (m,). Whoever was is out until its end:
            weight 0, its state as it was, no cost.
        count: N.
        aggregate: the server half.

    Returns:
        The state after it, and who is still present, (m,).
    """
    who, finite = Who(ids, count), present & jax.vmap(trees.all_finite)((messages, agents))
    server, latest = aggregate(state.server, who.spread(messages), who.spread(finite.astype(float)))
    kept = jax.vmap(trees.select)(finite, agents, who.gather(state.agents))
    after = charged(state, jax.vmap(trees.select)(present, infos, trees.zeros_like(infos)), finite)._replace(
        server=server,
        agents=who.spread(kept, state.agents),
        refused=state.refused + who.spread(present & ~finite),
        latest=latest,
    )
    return after, finite


def charged(state: SeedState, infos: LocalInfo, finite: jax.Array) -> SeedState:
    """The state with the costs of somebody's work added, leading axis M; `finite`, (M,), says whose numbers can be used."""
    return state._replace(info=base.total(trees.stack([state.info, _spent(infos, finite)])))


def conclude(before: SeedState, after: SeedState, sound: jax.Array, round: Any) -> SeedState:
    """Ends a round: a seed that cannot go on, () `sound`, is frozen as it was `before`, with the round's number for the record."""
    frozen = before._replace(failed=jnp.where(before.failed == HEALTHY, round, before.failed))
    return trees.select((before.failed == HEALTHY) & sound, after, frozen)


def scores(problem: Problem, algorithm: Algorithm, root: Any, seed: Any, round: Any, state: SeedState, agents: Any) -> Scores:
    """Evaluates what every agent would deploy now, in its own environment."""
    count = jax.tree.leaves(agents)[0].shape[0]
    keys = jax.vmap(lambda i: agent_key(root, seed, round, i, Purpose.EVALUATE))(jnp.arange(count))
    if algorithm.personal:
        params = jax.vmap(algorithm.deployed, (None, 0))(state.server.shared, state.agents)
    else:
        params = algorithm.deployed(state.server.shared, trees.take(state.agents, 0))
    found = jax.vmap(problem.evaluate, (0, 0 if algorithm.personal else None, 0))(keys, params, agents)
    if not jax.tree.leaves(found.gradient):
        return Scores(found.total_return, found.objective, None, None)
    mean = trees.mean_axis0(found.gradient)
    apart = jax.vmap(lambda g: trees.norm_sq(trees.subtract(g, mean)))(found.gradient)
    norm_sq = jnp.mean(jax.vmap(trees.norm_sq)(found.gradient)) if algorithm.personal else trees.norm_sq(mean)
    return Scores(found.total_return, found.objective, norm_sq, jnp.max(apart))

"""The order of a round, the same in every engine. Written for one seed.

1. Choose the participants: everyone, or those selected.
2. For every exchange of the prelude and then the main one: the local updates of all participants, then `aggregate`.
3. `server_update`, where the algorithm has one.

An agent whose message is not finite is absent for the rest of the round. A seed without a usable message is frozen (`failed`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Aggregate, Algorithm, Exchange, LocalInfo, LocalUpdate, RoundInfo, ServerState, exchanges_of
from fedpg.algorithms.selection import Selector
from fedpg.keys import Moment, Purpose
from fedpg.problem import Problem, Usage
from fedpg.trees import Tree

HEALTHY = -1


class SeedState(NamedTuple):
    """Everything that the next round of one seed needs, and what was counted since the counters were last cleared.

    Attributes:
        server: the algorithm's server state.
        agents: the algorithm's agent states, leading axis N.
        failed: the round in which the seed failed, -1 if it is healthy, ().
        info: costs and importance weights added up.
        refused: refused messages of each participant, (N,).
        latest: the last round's RoundInfo.
    """

    server: ServerState
    agents: Any
    failed: jax.Array
    info: LocalInfo
    refused: jax.Array
    latest: RoundInfo


class Scores(NamedTuple):
    """Evaluation scores of the deployed params.

    Attributes:
        returns: undiscounted return of each agent, (N,).
        objective: J_i of each agent, (N,).
        grad_norm_sq: |grad J|^2, (); None where it cannot be computed exactly. Personal params: mean of |grad J_i(th_i)|^2.
        spread: max_i |grad J_i - grad J|^2, (); None likewise.
        deterministic: undiscounted return of each agent with the most likely actions, (N,); None if it was not measured.
    """

    returns: jax.Array
    objective: jax.Array
    grad_norm_sq: jax.Array | None
    spread: jax.Array | None
    deterministic: jax.Array | None = None


class Participants(NamedTuple):
    """The m participants of a round among N agents.

    Attributes:
        ids: their numbers, (m,), ascending; None for all N.
        count: N.
    """

    ids: jax.Array | None
    count: int

    def numbers(self) -> jax.Array:
        """Their numbers, (m,), also if all N take part."""
        return jnp.arange(self.count) if self.ids is None else self.ids

    def gather(self, tree: Tree) -> Tree:
        """The participants' entries of a tree with leading axis N, leading axis m."""
        return tree if self.ids is None else trees.take(tree, self.ids)

    def scatter(self, tree: Tree, others: Tree = None) -> Tree:
        """A tree with leading axis N: `tree` for the participants, `others` (zeros if None) for the rest."""
        if self.ids is None:
            return tree
        if others is None:
            others = jax.tree.map(lambda x: jnp.zeros((self.count, *x.shape[1:]), x.dtype), tree)
        return jax.tree.map(lambda own, all: all.at[self.ids].set(own), tree, others)


class Stage(NamedTuple):
    """Which exchange of a run.

    Attributes:
        purpose: WARMUP, PRELUDE or TRAIN.
        number: which of the exchanges of that kind.
    """

    purpose: Purpose
    number: int = 0

    def keys(self, moment: Moment, ids: jax.Array) -> jax.Array:
        """The keys of the agents `ids`, (m,), in this exchange."""
        keys = moment.agent_keys(ids, self.purpose)
        return jax.vmap(jax.random.fold_in, (0, None))(keys, self.number) if self.purpose is Purpose.PRELUDE else keys

    def exchange(self, algorithm: Algorithm) -> Exchange:
        """The agent half and the server half of this exchange."""
        if self.purpose is Purpose.TRAIN:
            return exchanges_of(algorithm)[-1]
        return (algorithm.warmup if self.purpose is Purpose.WARMUP else algorithm.prelude)[self.number]


def stages_of_round(algorithm: Algorithm) -> list[Stage]:
    """The exchanges of a round, in their order."""
    return [*(Stage(Purpose.PRELUDE, number) for number in range(len(algorithm.prelude))), Stage(Purpose.TRAIN)]


class Executor(Protocol):
    """The part of an engine that executes a round: all agents at once, one by one, or on other machines."""

    def ask(self, stage: Stage, moment: Moment, update: LocalUpdate, shared: Any, who: Participants, states: Any, members: Any) -> Any:
        """Runs the local updates of the m participants.

        Args:
            stage, moment: which exchange.
            update: the agent half.
            shared: what is broadcast.
            who: the participants.
            states, members: their states and environments, leading axis m.

        Returns:
            (messages, states, infos) with leading axis m, and whether each agent answered at all, (m,).
        """

    def report(self, moment: Moment, select: Selector, params: Any, ids: jax.Array, members: Any) -> Any:
        """The reports of the candidates `ids`, (c,), on `params`, and what they cost, leading axis c."""

    def compute(self, what: str, moment: Moment, function: Callable[..., Any], *args: Any, **static: Any) -> Any:
        """function(*args, **static) on the server; `what` and `moment` name it in an error, and `static` is never traced."""


def participants(algorithm: Algorithm, agents: Any) -> Any:
    """The environments that exchange messages: those of the N agents, or one place that holds them all. Leading axis N or 1."""
    return jax.tree.map(lambda x: x[None], agents) if algorithm.pooled else agents


def initial_state(problem: Problem, algorithm: Algorithm, root: jax.Array, seed: Any, count: int) -> SeedState:
    """The state of a seed with `count` participants before the warm-up."""
    params = problem.init_params(Moment(root, seed, 0).server_key(Purpose.PARAMS))
    if problem.start is not None:
        params = trees.take(problem.start, seed % trees.leading_axis(problem.start))
    server, agent_state = algorithm.init(params)
    zero, agents = jnp.zeros(()), trees.broadcast(agent_state, count)
    state = SeedState(server, agents, jnp.asarray(HEALTHY), base.no_cost(), jnp.zeros(count, int), RoundInfo(zero, zero))
    # Strong types from the start: a weakly typed leaf would compile everything a second time after a checkpoint.
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), state)


def warm_up(algorithm: Algorithm, number: int, executor: Executor, agents: Any, root: jax.Array, seed: Any, state: SeedState) -> SeedState:
    """The state of a seed after exchange `number` of the warm-up, in which all agents take part."""
    members, moment, stage = participants(algorithm, agents), Moment(root, seed, number), Stage(Purpose.WARMUP, number)
    who = Participants(None, trees.leading_axis(members))
    exchange = stage.exchange(algorithm)
    results, answered = executor.ask(stage, moment, exchange.local_update, state.server.shared, who, state.agents, members)
    static = {"count": who.count, "aggregate": exchange.aggregate}
    after, present = executor.compute("aggregate", moment, settle, state, who.ids, results, answered, **static)
    return _conclude(state, after, jnp.any(present) & trees.all_finite(after.server), number)


def run_round(
    algorithm: Algorithm,
    select: Selector | None,
    executor: Executor,
    agents: Any,
    root: jax.Array,
    seed: Any,
    round: Any,
    state: SeedState,
    absent: jax.Array | None = None,
) -> SeedState:
    """The state of a seed after a round.

    Args:
        algorithm: what is run.
        select: how participants are chosen; None if all agents take part.
        executor: how the engine calls the algorithm's functions.
        agents: the environments, leading axis N.
        root, seed, round: what the keys are made from.
        state: before the round.
        absent: agents that are chosen only if too few others are there, (N,).
    """
    moment, members, after = Moment(root, seed, round), participants(algorithm, agents), state
    who = Participants(None, trees.leading_axis(members))
    if select is not None:
        who, after = _select(algorithm, select, executor, agents, moment, state, absent)
    members, present, sound = who.gather(members), jnp.ones(len(who.numbers()), bool), jnp.asarray(True)
    for stage in stages_of_round(algorithm):
        exchange, states = stage.exchange(algorithm), who.gather(after.agents)
        results, answered = executor.ask(stage, moment, exchange.local_update, after.server.shared, who, states, members)
        static = {"count": who.count, "aggregate": exchange.aggregate}
        after, present = executor.compute("aggregate", moment, settle, after, who.ids, results, present & answered, **static)
        sound &= jnp.any(present) & trees.all_finite(after.server)
    if algorithm.server_update is not None:
        key = moment.server_key(Purpose.SERVER)
        server, info = executor.compute("server_update", moment, algorithm.server_update, key, after.server, agents)
        infos = trees.stack([info])
        after = _add_costs(after, infos, jax.vmap(trees.all_finite)(infos))._replace(server=server)
        sound &= trees.all_finite(server)
    return _conclude(state, after, sound, round)


def _select(
    algorithm: Algorithm,
    select: Selector,
    executor: Executor,
    agents: Any,
    moment: Moment,
    state: SeedState,
    absent: jax.Array | None,
) -> tuple[Participants, SeedState]:
    """The participants, and the state with the cost of choosing them."""
    count = trees.leading_axis(agents)
    ids = select.draw(moment, count, absent)
    if select.report is not None:
        params = algorithm.deployed(state.server.shared, trees.take(state.agents, 0))
        reports, infos = executor.report(moment, select, params, ids, trees.take(agents, ids))
        ids = executor.compute("selection", moment, select.choose, ids, reports)
        state = _add_costs(state, infos, jax.vmap(trees.all_finite)((reports, infos)))
    return Participants(jnp.sort(ids), count), state


def settle(
    state: SeedState,
    ids: jax.Array | None,
    results: tuple[Any, Any, LocalInfo],
    present: jax.Array,
    *,
    count: int,
    aggregate: Aggregate,
) -> tuple[SeedState, jax.Array]:
    """Ends an exchange: refuses messages that are not finite and aggregates the rest.

    Args:
        state: before the exchange.
        ids: the m participants, (m,), None for all N; the other agents count as absent and keep their states.
        results: messages, states and infos of the local updates, leading axis m.
        present: whether a participant answered and nothing of it was refused in this round so far, (m,).
        count: N.
        aggregate: the server half.

    Returns:
        The state after it, and which participants are still present, (m,).
    """
    who, (messages, agents, infos) = Participants(ids, count), results
    finite = present & jax.vmap(trees.all_finite)((messages, agents))
    server, latest = aggregate(state.server, who.scatter(messages), who.scatter(finite.astype(float)))
    kept = jax.vmap(trees.select)(finite, agents, who.gather(state.agents))
    after = _add_costs(state, jax.vmap(trees.select)(present, infos, trees.zeros_like(infos)), finite)._replace(
        server=server,
        agents=who.scatter(kept, state.agents),
        refused=state.refused + who.scatter(present & ~finite),
        latest=latest,
    )
    return after, finite


def _add_costs(state: SeedState, infos: LocalInfo, finite: jax.Array) -> SeedState:
    """The state with the costs of some agents added, leading axis M; `finite`, (M,), marks those whose numbers can be used."""
    costs = infos.usage
    # A failed agent cost its trajectories too; its return counts as the mean of the others, so that their mean stays.
    mean = jnp.sum(jnp.where(finite, costs.total_return, 0.0)) / jnp.maximum(jnp.sum(jnp.where(finite, costs.trajectories, 0)), 1)
    usage = Usage(costs.trajectories, costs.env_steps, jnp.where(finite, costs.total_return, mean * costs.trajectories))
    weights = jax.vmap(trees.select)(finite, infos.weights, trees.zeros_like(infos.weights))
    return state._replace(info=base.total(trees.stack([state.info, base.total(LocalInfo(usage, weights))])))


def _conclude(before: SeedState, after: SeedState, sound: jax.Array, round: Any) -> SeedState:
    """Ends a round: a seed that is not `sound`, (), is frozen as it was `before`, and the round is recorded in `failed`."""
    frozen = before._replace(failed=jnp.where(before.failed == HEALTHY, round, before.failed))
    return trees.select((before.failed == HEALTHY) & sound, after, frozen)


def deployed_params(algorithm: Algorithm, state: SeedState) -> Any:
    """What the agents of a seed would act with: common params, or with a leading axis N for personal algorithms."""
    if algorithm.personal:
        return jax.vmap(algorithm.deployed, (None, 0))(state.server.shared, state.agents)
    return algorithm.deployed(state.server.shared, trees.take(state.agents, 0))


def evaluate(problem: Problem, algorithm: Algorithm, moment: Moment, state: SeedState, agents: Any) -> Scores:
    """Evaluates what every agent would deploy now, in its own environment."""
    keys = moment.agent_keys(jnp.arange(trees.leading_axis(agents)), Purpose.EVALUATE)
    params = deployed_params(algorithm, state)
    found = jax.vmap(problem.evaluate, (0, 0 if algorithm.personal else None, 0))(keys, params, agents)
    if not jax.tree.leaves(found.gradient):
        certain = found.deterministic if jax.tree.leaves(found.deterministic) else None
        return Scores(found.total_return, found.objective, None, None, certain)
    mean = trees.mean_axis0(found.gradient)
    apart = jax.vmap(lambda g: trees.norm_sq(trees.subtract(g, mean)))(found.gradient)
    norm_sq = jnp.mean(jax.vmap(trees.norm_sq)(found.gradient)) if algorithm.personal else trees.norm_sq(mean)
    return Scores(found.total_return, found.objective, norm_sq, jnp.max(apart))

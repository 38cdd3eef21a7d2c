"""What happens in a round, in which order: the same in every engine. Written for one seed.

who takes part: everyone, or those selected
every exchange of the prelude, then the main one: local_update of all participants, then aggregate
server_update, where the algorithm has one
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms.base import Algorithm, Exchange
from fedpg.engines import round as rounds
from fedpg.engines.keys import Moment, Purpose
from fedpg.engines.participation import Who
from fedpg.engines.round import SeedState, participants
from fedpg.engines.selection import Selector


class Calls(Protocol):
    """How an engine calls an algorithm's functions; `what` names the stage for whoever looks for an error."""

    def each(self, what: str, ids: jax.Array | None, function: Callable[..., Any], *args: Any) -> Any:
        """function(*args) of the agents `ids` (None: all), one by one or at once; args and result have a leading axis."""

    def once(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """function(*args)."""


def _everyone(members: Any) -> Who:
    return Who(None, jax.tree.leaves(members)[0].shape[0])


def _exchanged(
    exchange: Exchange, keys: jax.Array, state: SeedState, who: Who, present: jax.Array, members: Any, call: Calls
) -> tuple[SeedState, jax.Array, jax.Array]:
    """One exchange: the state after it, which participants are still present, (m,), and whether the seed can go on, ()."""
    shared = state.server.shared

    def update(key: jax.Array, agent_state: Any, agent: Any) -> Any:
        return exchange.local_update(key, shared, agent_state, agent)

    results = call.each("local_update", who.ids, update, keys, who.gather(state.agents), members)
    after, present = call.once("aggregate", rounds.settle, state, who, exchange.aggregate, *results, present)
    return after, present, jnp.any(present) & trees.all_finite(after.server)


def warm_up(algorithm: Algorithm, number: int, moment: Moment, state: SeedState, agents: Any, call: Calls) -> SeedState:
    """Exchange `number` of the warm-up, in which all agents take part."""
    members = participants(algorithm, agents)
    who = _everyone(members)
    keys, present = moment.keys(who.numbers(), Purpose.WARMUP), jnp.ones(who.count, bool)
    after, _, sound = _exchanged(algorithm.warmup[number], keys, state, who, present, members, call)
    return rounds.conclude(state, after, sound, moment.round)


def _selected(select: Selector, algorithm: Algorithm, moment: Moment, state: SeedState, agents: Any, call: Calls) -> tuple[Who, SeedState]:
    """The participants, and the state with what finding them has cost."""
    count = jax.tree.leaves(agents)[0].shape[0]
    ids = select.drawn(moment, count)
    if select.report is not None:
        params = algorithm.deployed(state.server.shared, trees.take(state.agents, 0))

        def report(key: jax.Array, agent: Any) -> Any:
            return select.report(key, params, agent)

        reports, infos = call.each("report", ids, report, moment.keys(ids, Purpose.REPORT), trees.take(agents, ids))
        ids = call.once("selection", select.elected, ids, reports)
        state = rounds.charged(state, infos, jax.vmap(trees.all_finite)((reports, infos)))
    return Who(jnp.sort(ids), count), state


def play(algorithm: Algorithm, select: Selector | None, moment: Moment, state: SeedState, agents: Any, call: Calls) -> SeedState:
    """The state of a seed after a round.

    Args:
        algorithm: what is run.
        select: how participants are chosen; None if all agents are.
        moment: which round of which seed.
        state: before it.
        agents: leading axis N.
        call: how the engine calls functions.
    """
    members = participants(algorithm, agents)
    who, after = _everyone(members), state
    if select is not None:
        who, after = _selected(select, algorithm, moment, state, agents, call)
    ids, members = who.numbers(), who.gather(members)
    present, sound = jnp.ones(len(ids), bool), jnp.asarray(True)
    steps = [(exchange, Purpose.PRELUDE, number) for number, exchange in enumerate(algorithm.prelude)]
    for exchange, purpose, number in (*steps, (Exchange(algorithm.local_update, algorithm.aggregate), Purpose.TRAIN, None)):
        keys = moment.keys(ids, purpose)
        keys = keys if number is None else jax.vmap(jax.random.fold_in, (0, None))(keys, number)
        after, present, fine = _exchanged(exchange, keys, after, who, present, members, call)
        sound &= fine
    if algorithm.server_update is not None:
        server, info = call.once("server_update", algorithm.server_update, moment.key(Purpose.SERVER), after.server, agents)
        one = trees.stack([info])
        after = rounds.charged(after, one, jax.vmap(trees.all_finite)(one))._replace(server=server)
        sound &= trees.all_finite(server)
    return rounds.conclude(state, after, sound, moment.round)

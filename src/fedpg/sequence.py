"""What happens in a round, in which order: the same in every engine. Written for one seed.

who takes part: everyone, or those selected
every exchange of the prelude, then the main one: local_update of all participants, then aggregate
server_update, where the algorithm has one
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from fedpg import rounds, trees
from fedpg.algorithms.base import Algorithm, Exchange, LocalUpdate, exchanges_of
from fedpg.algorithms.participation import Who
from fedpg.algorithms.selection import Selector
from fedpg.keys import Moment, Purpose
from fedpg.rounds import SeedState, participants


class Stage(NamedTuple):
    """Where in a run an exchange happens.

    Attributes:
        purpose: WARMUP, PRELUDE, TRAIN or REPORT.
        number: which of the exchanges of that kind.
    """

    purpose: Purpose
    number: int = 0

    def keys(self, moment: Moment, ids: jax.Array) -> jax.Array:
        """The keys of the agents `ids`, (m,), in this exchange."""
        keys = moment.keys(ids, self.purpose)
        return jax.vmap(jax.random.fold_in, (0, None))(keys, self.number) if self.purpose is Purpose.PRELUDE else keys

    def exchange(self, algorithm: Algorithm) -> Exchange:
        """What agents and server do in it."""
        if self.purpose is Purpose.TRAIN:
            return exchanges_of(algorithm)[-1]
        return (algorithm.warmup if self.purpose is Purpose.WARMUP else algorithm.prelude)[self.number]


class Calls(Protocol):
    """How an engine calls an algorithm's functions; `what` names the stage for whoever looks for an error."""

    def exchange(self, stage: Stage, moment: Moment, shared: Any, who: Who, states: Any, members: Any, update: LocalUpdate) -> Any:
        """What the local updates of the participants return, leading axis m, and whether there was an answer at all, (m,).

        Args:
            stage, moment: which exchange.
            shared: what is broadcast.
            who: the m participants.
            states, members: their states and environments, leading axis m.
            update: the agent half.
        """

    def report(self, moment: Moment, select: Selector, params: Any, ids: jax.Array, members: Any) -> Any:
        """What the candidates `ids`, (c,), report on `params`, and what that cost them, leading axis c."""

    def once(self, what: str, function: Callable[..., Any], *args: Any, **constants: Any) -> Any:
        """function(*args, **constants); the constants are the same whenever this is called, and never traced."""


class Local(Protocol):
    """The calls of an engine that holds all agents: everybody answers."""

    def each(self, what: str, ids: jax.Array | None, function: Callable[..., Any], *args: Any) -> Any:
        """function(*args) of the agents `ids` (None: all), one by one or at once; args and result have a leading axis."""

    def exchange(self, stage: Stage, moment: Moment, shared: Any, who: Who, states: Any, members: Any, update: LocalUpdate) -> Any:
        def one(key: jax.Array, agent_state: Any, agent: Any) -> Any:
            return update(key, shared, agent_state, agent)

        ids = who.numbers()
        return self.each("local_update", who.ids, one, stage.keys(moment, ids), states, members), jnp.ones(len(ids), bool)

    def report(self, moment: Moment, select: Selector, params: Any, ids: jax.Array, members: Any) -> Any:
        def one(key: jax.Array, agent: Any) -> Any:
            return select.report(key, params, agent)

        return self.each("report", ids, one, Stage(Purpose.REPORT).keys(moment, ids), members)


def _everyone(members: Any) -> Who:
    return Who(None, jax.tree.leaves(members)[0].shape[0])


def _exchanged(
    stage: Stage, algorithm: Algorithm, moment: Moment, state: SeedState, who: Who, present: jax.Array, members: Any, call: Calls
) -> tuple[SeedState, jax.Array, jax.Array]:
    """One exchange: the state after it, which participants are still present, (m,), and whether the seed can go on, ()."""
    update, aggregate, _ = stage.exchange(algorithm)
    results, answered = call.exchange(stage, moment, state.server.shared, who, who.gather(state.agents), members, update)
    heard = present & answered
    after, present = call.once("aggregate", rounds.settle, state, who.ids, *results, heard, count=who.count, aggregate=aggregate)
    return after, present, jnp.any(present) & trees.all_finite(after.server)


def warm_up(algorithm: Algorithm, number: int, moment: Moment, state: SeedState, agents: Any, call: Calls) -> SeedState:
    """Exchange `number` of the warm-up, in which all agents take part."""
    members = participants(algorithm, agents)
    who = _everyone(members)
    stage, present = Stage(Purpose.WARMUP, number), jnp.ones(who.count, bool)
    after, _, sound = _exchanged(stage, algorithm, moment, state, who, present, members, call)
    return rounds.conclude(state, after, sound, moment.round)


def _selected(
    select: Selector, algorithm: Algorithm, moment: Moment, state: SeedState, agents: Any, call: Calls, absent: jax.Array | None
) -> tuple[Who, SeedState]:
    """The participants, and the state with what finding them has cost."""
    count = jax.tree.leaves(agents)[0].shape[0]
    ids = select.drawn(moment, count, absent)
    if select.report is not None:
        params = algorithm.deployed(state.server.shared, trees.take(state.agents, 0))
        reports, infos = call.report(moment, select, params, ids, trees.take(agents, ids))
        ids = call.once("selection", select.elected, ids, reports)
        state = rounds.charged(state, infos, jax.vmap(trees.all_finite)((reports, infos)))
    return Who(jnp.sort(ids), count), state


def stages_of_a_round(algorithm: Algorithm) -> list[Stage]:
    """The exchanges of a round, in their order."""
    return [*(Stage(Purpose.PRELUDE, number) for number in range(len(algorithm.prelude))), Stage(Purpose.TRAIN)]


def play(
    algorithm: Algorithm,
    select: Selector | None,
    moment: Moment,
    state: SeedState,
    agents: Any,
    call: Calls,
    absent: jax.Array | None = None,
) -> SeedState:
    """The state of a seed after a round.

    Args:
        algorithm: what is run.
        select: how participants are chosen; None if all agents are.
        moment: which round of which seed.
        state: before it.
        agents: leading axis N.
        call: how the engine calls functions.
        absent: who is chosen only if too few others are there, (N,); nobody by default.
    """
    members = participants(algorithm, agents)
    who, after = _everyone(members), state
    if select is not None:
        who, after = _selected(select, algorithm, moment, state, agents, call, absent)
    members = who.gather(members)
    present, sound = jnp.ones(len(who.numbers()), bool), jnp.asarray(True)
    for stage in stages_of_a_round(algorithm):
        after, present, fine = _exchanged(stage, algorithm, moment, after, who, present, members, call)
        sound &= fine
    if algorithm.server_update is not None:
        server, info = call.once("server_update", algorithm.server_update, moment.key(Purpose.SERVER), after.server, agents)
        one = trees.stack([info])
        after = rounds.charged(after, one, jax.vmap(trees.all_finite)(one))._replace(server=server)
        sound &= trees.all_finite(server)
    return rounds.conclude(state, after, sound, moment.round)

"""What happens in a round, in which order: the same in every engine. Written for one seed.

every exchange of the prelude, then the main one:   local_update of all participants, then aggregate
server_update, where the algorithm has one
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms.base import Algorithm, Exchange
from fedpg.engines import round as rounds
from fedpg.engines.keys import Purpose, agent_key
from fedpg.engines.round import SeedState, participants


class Calls(Protocol):
    """How an engine calls an algorithm's functions; `what` names the stage for whoever looks for an error."""

    def each(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """function(*args) of every participant; args and result have a leading axis N."""

    def once(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """function(*args)."""


class Moment(NamedTuple):
    """Which round of which seed: what its keys are made from."""

    root: Any
    seed: Any
    round: Any

    def keys(self, count: int, purpose: Purpose) -> jax.Array:
        """One key for each of `count` participants, (N,)."""
        return jax.vmap(lambda i: agent_key(*self, i, purpose))(jnp.arange(count))


def _exchanged(
    exchange: Exchange, keys: jax.Array, state: SeedState, present: jax.Array, members: Any, call: Calls
) -> tuple[SeedState, jax.Array, jax.Array]:
    """One exchange: the state after it, who is still present, (N,), and whether the seed can go on, ()."""
    shared = state.server.shared

    def update(key: jax.Array, agent_state: Any, agent: Any) -> Any:
        return exchange.local_update(key, shared, agent_state, agent)

    results = call.each("local_update", update, keys, state.agents, members)
    after, present = call.once("aggregate", rounds.settle, state, exchange.aggregate, *results, present)
    return after, present, jnp.any(present) & trees.all_finite(after.server)


def warm_up(algorithm: Algorithm, number: int, moment: Moment, state: SeedState, agents: Any, call: Calls) -> SeedState:
    """Exchange `number` of the warm-up."""
    members = participants(algorithm, agents)
    count = jax.tree.leaves(members)[0].shape[0]
    keys, everyone = moment.keys(count, Purpose.WARMUP), jnp.ones(count, bool)
    after, _, sound = _exchanged(algorithm.warmup[number], keys, state, everyone, members, call)
    return rounds.conclude(state, after, sound, moment.round)


def play(algorithm: Algorithm, moment: Moment, state: SeedState, agents: Any, call: Calls) -> SeedState:
    """The state of a seed after a round.

    Args:
        algorithm: what is run.
        moment: which round of which seed.
        state: before it.
        agents: leading axis N.
        call: how the engine calls functions.
    """
    members = participants(algorithm, agents)
    count = jax.tree.leaves(members)[0].shape[0]
    after, present, sound = state, jnp.ones(count, bool), jnp.asarray(True)
    steps = [(exchange, Purpose.PRELUDE, number) for number, exchange in enumerate(algorithm.prelude)]
    for exchange, purpose, number in (*steps, (Exchange(algorithm.local_update, algorithm.aggregate), Purpose.TRAIN, None)):
        keys = moment.keys(count, purpose)
        keys = keys if number is None else jax.vmap(jax.random.fold_in, (0, None))(keys, number)
        after, present, fine = _exchanged(exchange, keys, after, present, members, call)
        sound &= fine
    if algorithm.server_update is not None:
        key = agent_key(*moment, 0, Purpose.SERVER)
        after = rounds.served(after, *call.once("server_update", algorithm.server_update, key, after.server, agents))
        sound &= trees.all_finite(after.server)
    return rounds.conclude(state, after, sound, moment.round)

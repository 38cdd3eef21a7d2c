"""Observation normalisation that is sound in a federation, around any algorithm.

    fixed      before round 0 every agent acts a little with theta_0 and sends the moments of what it saw: count, mean and
               squared distances, never an observation. The server merges them into the policy's scale, once.
    running    the same, and in every round the moments of that round travel with the message and are merged in.

The scale is among the params (`fedpg.policies.normalised`), so it is broadcast and stored with them. Personal algorithms send
nothing: there each agent keeps a scale of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import moments, trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, Exchange, LocalInfo, RoundInfo, ServerState
from fedpg.errors import choose
from fedpg.moments import Moments
from fedpg.policies.normalised import Normalised, scale_of
from fedpg.problem import Problem

MODES = ("off", "fixed", "running")


class Message(NamedTuple):
    """Attributes:
    inner: the algorithm's own message.
    seen: the moments of the round's observations; () if they do not travel.
    """

    inner: Any
    seen: Any


class Remembering(NamedTuple):
    """A state of the algorithm, and the moments of everything seen so far."""

    inner: Any
    seen: Moments


def normalise(algorithm: Algorithm, problem: Problem, mode: str) -> Algorithm:
    """`algorithm` with its observations normalised; its policy must be `normalised`."""
    if choose("normalise-observations", mode, MODES) == "off":
        return algorithm
    return (_personal if algorithm.personal else _common)(algorithm, problem, running=mode == "running")


def _rescaled(params: Normalised, seen: Moments) -> Normalised:
    return params._replace(scale=scale_of(seen, params.scale.mean.shape))


def _no_moments(params: Normalised) -> Moments:
    return moments.nothing(params.scale.mean.size)


def _grown(seen: Moments, more: Moments) -> Moments:
    return moments.merge(trees.stack([seen, more]))


def _common(algorithm: Algorithm, problem: Problem, *, running: bool) -> Algorithm:
    """One scale for all, kept by the server."""

    def init(params: Normalised) -> tuple[ServerState, Any]:
        server, agent_state = algorithm.init(params)
        return server._replace(private=Remembering(server.private, _no_moments(params))), agent_state

    def merged(seen: Moments, messages: Moments, weights: jax.Array) -> Moments:
        """`seen` with the moments of the agents that are present."""
        absent = jax.tree.map(jnp.zeros_like, messages)
        return _grown(seen, moments.merge(jax.vmap(trees.select)(weights > 0, messages, absent)))

    def inner(state: ServerState) -> ServerState:
        return state._replace(private=state.private.inner)

    def look(key: jax.Array, shared: Any, agent_state: Any, agent: Any) -> tuple[Moments, Any, LocalInfo]:
        sample, _ = problem.sample(key, shared.params, agent, problem.init_memory())
        usage = problem.usage(sample)
        return usage.observations, agent_state, LocalInfo(usage, base.no_weights())

    def set_scale(state: ServerState, messages: Moments, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
        seen = merged(state.private.seen, messages, weights)
        # The algorithm starts over from theta_0 with its scale, so that whatever it remembers (theta_{-1}) has it too.
        fresh, _ = algorithm.init(_rescaled(state.shared.params, seen))
        return fresh._replace(private=Remembering(fresh.private, seen)), RoundInfo(jnp.zeros(()), jnp.zeros(()))

    def passed_on(exchange: Exchange, sends: bool, ends: bool) -> Exchange:
        """The algorithm's own exchange; with `sends` moments travel with its messages, and move the scale if it `ends` the round."""

        def local_update(key: jax.Array, shared: Any, agent_state: Any, agent: Any) -> tuple[Message, Any, LocalInfo]:
            message, agent_state, info = exchange.local_update(key, shared, agent_state, agent)
            return Message(message, info.usage.observations if sends else ()), agent_state, info

        def aggregate(state: ServerState, messages: Message, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
            server, info = exchange.aggregate(inner(state), messages.inner, weights)
            seen = merged(state.private.seen, messages.seen, weights) if sends else state.private.seen
            # Within a round all exchanges see one scale: what an agent measured in a prelude must hold in what follows.
            shared = server.shared._replace(params=_rescaled(server.shared.params, seen)) if sends and ends else server.shared
            return ServerState(shared, Remembering(server.private, seen)), info

        def message(shared: Any) -> Message:
            return Message(exchange.message(shared), _no_moments(shared.params) if sends else ())

        return Exchange(local_update, aggregate, message)

    def server_update(key: jax.Array, state: ServerState, agents: Any) -> tuple[ServerState, LocalInfo]:
        """The server's own work, on the scale that the round has led to. The scale is that of what the agents see."""
        server, info = algorithm.server_update(key, inner(state), agents)
        seen = state.private.seen
        shared = server.shared._replace(params=_rescaled(server.shared.params, seen)) if running else server.shared
        return ServerState(shared, Remembering(server.private, seen)), info

    own = passed_on(base.exchanges_of(algorithm)[-1], running, True)
    scale = Exchange(look, set_scale, lambda shared: _no_moments(shared.params))
    return algorithm._replace(
        init=init,
        **own._asdict(),
        warmup=(scale, *(passed_on(exchange, False, False) for exchange in algorithm.warmup)),
        prelude=tuple(passed_on(exchange, running, False) for exchange in algorithm.prelude),
        server_update=None if algorithm.server_update is None else server_update,
    )


def _personal(algorithm: Algorithm, problem: Problem, *, running: bool) -> Algorithm:
    """A scale for each agent, kept by the agent among its own params."""

    def init(params: Normalised) -> tuple[ServerState, Remembering]:
        server, agent_state = algorithm.init(params)
        return server, Remembering(agent_state, _no_moments(params))

    def learned(agent_state: Any, seen: Moments) -> Remembering:
        return Remembering(agent_state._replace(params=_rescaled(agent_state.params, seen)), seen)

    def look(key: jax.Array, shared: Any, state: Remembering, agent: Any) -> tuple[Any, Remembering, LocalInfo]:
        sample, _ = problem.sample(key, state.inner.params, agent, problem.init_memory())
        usage = problem.usage(sample)
        return (), learned(state.inner, usage.observations), LocalInfo(usage, base.no_weights())

    def local_update(key: jax.Array, shared: Any, state: Remembering, agent: Any) -> tuple[Any, Remembering, LocalInfo]:
        message, agent_state, info = algorithm.local_update(key, shared, state.inner, agent)
        after = learned(agent_state, _grown(state.seen, info.usage.observations)) if running else Remembering(agent_state, state.seen)
        return message, after, info

    def keep(state: ServerState, messages: Any, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
        return state, RoundInfo(jnp.zeros(()), jnp.zeros(()))

    return algorithm._replace(
        init=init,
        local_update=local_update,
        warmup=(Exchange(look, keep, lambda shared: ()),),
        deployed=lambda shared, state: algorithm.deployed(shared, state.inner),
    )

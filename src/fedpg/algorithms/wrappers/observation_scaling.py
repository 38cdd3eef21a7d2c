"""Observation normalisation that shares no observation.

    fixed      before round 0 every agent acts for one batch with theta_0 and sends the moments of its observations: count, mean and
               sum of squared distances. The server merges them into the policy's scale, once.
    running    the same, and in every round the moments of that round travel with the message and are merged in.

The scale is among the params (`fedpg.policies.scaled`), so it is broadcast and stored with them. Personal algorithms send
nothing: there each agent keeps a scale of its own.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import moments, trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, Exchange, LocalInfo, Problem, RoundInfo, ServerState
from fedpg.algorithms.pooled import pool
from fedpg.algorithms.wrappers.base import Wrapper
from fedpg.errors import choose, require
from fedpg.moments import Moments
from fedpg.policies.scaled import Scaled, scale_of

MODES = ("off", "fixed", "running", "kept")


class MessageWithMoments(NamedTuple):
    """A message of the algorithm, and the moments of the round's observations; () if they do not travel."""

    inner: Any
    seen: Any


class StateWithMoments(NamedTuple):
    """A state of the algorithm, and the moments of all observations so far."""

    inner: Any
    seen: Moments


def observation_scaling(problem: Problem, mode: str) -> Wrapper:
    """Normalises observations to mean 0 and deviation 1, on one scale for all agents.

    Args:
        problem: what is learned; its policy must be scaled, and it must watch observations.
        mode: off, fixed (measured once, before round 0), running (updated in every round) or kept (the scale that the params have).
    """
    off, running = choose("normalise-observations", mode, MODES) in ("off", "kept"), mode == "running"

    def wrap(algorithm: Algorithm) -> Algorithm:
        return (_own_scales if algorithm.personal else _common_scale)(algorithm, problem, running)

    return Wrapper("observation_scaling", None if off else wrap)


def _rescaled(params: Scaled, seen: Moments) -> Scaled:
    return params._replace(scale=scale_of(seen, params.scale.mean.shape))


def _no_moments(params: Scaled) -> Moments:
    require(isinstance(params, Scaled), "observation scaling needs policies.make(..., scaled=True)")
    return moments.nothing(params.scale.mean.size)


def _merged(seen: Moments, more: Moments) -> Moments:
    return moments.merge(trees.stack([seen, more]))


def _observe(problem: Problem, key: jax.Array, params: Scaled, agent: Any) -> LocalInfo:
    """The cost of one batch, which contains the moments of its observations."""
    sample, _ = problem.sample(key, params, agent, problem.init_memory())
    return LocalInfo(problem.usage(sample), base.no_weights())


def _common_scale(algorithm: Algorithm, problem: Problem, running: bool) -> Algorithm:
    """One scale for all, kept by the server."""

    def init(params: Scaled) -> tuple[ServerState, Any]:
        server, agent_state = algorithm.init(params)
        return server._replace(private=StateWithMoments(server.private, _no_moments(params))), agent_state

    def with_messages(seen: Moments, messages: Moments, present: jax.Array) -> Moments:
        """`seen` with the moments of the agents that are present."""
        absent = jax.tree.map(jnp.zeros_like, messages)
        return _merged(seen, moments.merge(jax.vmap(trees.select)(present > 0, messages, absent)))

    def inner(state: ServerState) -> ServerState:
        return state._replace(private=state.private.inner)

    def send_moments(key: jax.Array, shared: Any, agent_state: Any, agent: Any) -> tuple[Moments, Any, LocalInfo]:
        held = pool(problem, jax.tree.leaves(agent)[0].shape[0]) if algorithm.pooled else problem
        info = _observe(held, key, shared.params, agent)
        return info.usage.observations, agent_state, info

    def set_scale(state: ServerState, messages: Moments, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        seen = with_messages(state.private.seen, messages, present)
        # The algorithm starts again from theta_0 with its scale, so that all its copies of theta_0 (theta_{-1}) have it too.
        fresh, _ = algorithm.init(_rescaled(state.shared.params, seen))
        return fresh._replace(private=StateWithMoments(fresh.private, seen)), RoundInfo(jnp.zeros(()), jnp.zeros(()))

    def with_moments(exchange: Exchange, ends_round: bool) -> Exchange:
        """The algorithm's exchange; with a running scale moments travel with its messages and, if it `ends_round`, change the scale."""

        def local_update(key: jax.Array, shared: Any, agent_state: Any, agent: Any) -> tuple[MessageWithMoments, Any, LocalInfo]:
            message, agent_state, info = exchange.local_update(key, shared, agent_state, agent)
            return MessageWithMoments(message, info.usage.observations if running else ()), agent_state, info

        def aggregate(state: ServerState, messages: MessageWithMoments, present: jax.Array) -> tuple[ServerState, RoundInfo]:
            (shared, private), info = exchange.aggregate(inner(state), messages.inner, present)
            seen = with_messages(state.private.seen, messages.seen, present) if running else state.private.seen
            # Within a round all exchanges use one scale: what an agent measured in a prelude must hold in what follows.
            if running and ends_round:
                shared = shared._replace(params=_rescaled(shared.params, seen))
            return ServerState(shared, StateWithMoments(private, seen)), info

        def predicted(shared: Any) -> MessageWithMoments:
            return MessageWithMoments(exchange.predicted(shared), _no_moments(shared.params) if running else ())

        return Exchange(local_update, aggregate, predicted)

    def server_update(key: jax.Array, state: ServerState, agents: Any) -> tuple[ServerState, LocalInfo]:
        """The server's own steps, which leave the scale as it is: it describes what agents see, not what the server sees."""
        (shared, private), info = algorithm.server_update(key, inner(state), agents)
        return ServerState(shared, StateWithMoments(private, state.private.seen)), info

    *others, own = base.exchanges_of(algorithm)
    wrapped = [*(with_moments(exchange, False) for exchange in others), with_moments(own, True)]
    changed = base.with_exchanges(algorithm, wrapped)
    first = Exchange(send_moments, set_scale, lambda shared: _no_moments(shared.params))
    served = None if algorithm.server_update is None else server_update
    return changed._replace(init=init, warmup=(first, *changed.warmup), server_update=served)


def _own_scales(algorithm: Algorithm, problem: Problem, running: bool) -> Algorithm:
    """A scale for each agent, kept by the agent among its own params."""

    def init(params: Scaled) -> tuple[ServerState, StateWithMoments]:
        server, agent_state = algorithm.init(params)
        return server, StateWithMoments(agent_state, _no_moments(params))

    def with_scale(agent_state: Any, seen: Moments) -> StateWithMoments:
        return StateWithMoments(agent_state._replace(params=_rescaled(agent_state.params, seen)), seen)

    def measure(key: jax.Array, shared: Any, state: StateWithMoments, agent: Any) -> tuple[Any, StateWithMoments, LocalInfo]:
        info = _observe(problem, key, state.inner.params, agent)
        return (), with_scale(state.inner, info.usage.observations), info

    def with_own_scale(exchange: Exchange) -> Exchange:
        def local_update(key: jax.Array, shared: Any, state: StateWithMoments, agent: Any) -> tuple[Any, StateWithMoments, LocalInfo]:
            message, agent_state, info = exchange.local_update(key, shared, state.inner, agent)
            if not running:
                return message, StateWithMoments(agent_state, state.seen), info
            return message, with_scale(agent_state, _merged(state.seen, info.usage.observations)), info

        return exchange._replace(local_update=local_update)

    def keep(state: ServerState, messages: Any, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        return state, RoundInfo(jnp.zeros(()), jnp.zeros(()))

    changed = base.with_exchanges(algorithm, [with_own_scale(exchange) for exchange in base.exchanges_of(algorithm)])
    return changed._replace(
        init=init,
        warmup=(Exchange(measure, keep, lambda shared: ()), *changed.warmup),
        deployed=lambda shared, state: algorithm.deployed(shared, state.inner),
    )

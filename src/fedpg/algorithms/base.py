"""The contract: an algorithm is three pure functions, written for one agent.

    init(params)                                  -> ServerState(shared, private), agent_state
    local_update(key, shared, agent_state, agent) -> message, agent_state, LocalInfo
    aggregate(server_state, messages, weights)    -> server_state, RoundInfo

`shared` is exactly what is broadcast, `message` exactly what is uploaded, `private` stays on the server, `agent_state` with
its agent. `weights` is (N,): 0 = absent this round. State is what the next round needs, Info what a person wants to see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms.aggregation import mean
from fedpg.errors import require
from fedpg.gradients.importance import Weights
from fedpg.problem import Problem, Usage, total_usage
from fedpg.trees import Params


class ServerState(NamedTuple):
    """Attributes:
    shared: broadcast to every agent at the start of a round.
    private: never leaves the server.
    """

    shared: Any
    private: Any = ()


class LocalInfo(NamedTuple):
    """What an agent's work in one round cost, and how its importance weights behaved. Infos add up, see `total`."""

    usage: Usage
    weights: Weights


class RoundInfo(NamedTuple):
    """Attributes:
    direction_sq: |u_{r+1}|^2.
    drift_sq: mean over agents of |theta_iK - theta_r|^2.
    """

    direction_sq: jax.Array
    drift_sq: jax.Array


class LocalUpdate(Protocol):
    def __call__(self, key: jax.Array, shared: Any, agent_state: Any, agent: Any) -> tuple[Any, Any, LocalInfo]: ...


class Aggregate(Protocol):
    def __call__(self, server_state: ServerState, messages: Any, weights: jax.Array) -> tuple[ServerState, RoundInfo]: ...


def like_params(shared: Any) -> Params:
    """What the servers of most algorithms expect: a number for each param, and they cannot tell which."""
    return trees.zeros_like(shared.params)


class Exchange(NamedTuple):
    """One message from every agent and what the server makes of them.

    Attributes:
        local_update, aggregate: the two halves.
        message: shared -> the message that the server expects, before there is any: its structure, shapes and types, and, where
            the message follows in part from `shared`, that part; else 0. Who shortens messages shortens what goes beyond it.
    """

    local_update: LocalUpdate
    aggregate: Aggregate
    message: Callable[[Any], Any] = like_params


class Algorithm(NamedTuple):
    """Attributes:
    name: what `--algorithm` calls it.
    init, local_update, aggregate: the contract above.
    warmup: exchanges before round 0 (the scale of observations, the initial direction u_0).
    prelude: exchanges at the start of every round, before local_update and aggregate (Fast-FedPG's common gradient).
    server_update: (key, server_state, agents) -> server_state, LocalInfo, after aggregate in every round: what a server with an
        environment of its own does there (FedPG-BR); `agents` has a leading axis N. None for servers that only aggregate.
    deployed: (shared, agent_state) -> the params that the agent would act with.
    personal: agents deploy params of their own instead of common ones.
    pooled: trains in one place that holds all agents' environments; `agent` then has a leading axis N.
    message: what the server expects of a round, as in `Exchange`.
    """

    name: str
    init: Callable[[Params], tuple[ServerState, Any]]
    local_update: LocalUpdate
    aggregate: Aggregate
    warmup: tuple[Exchange, ...] = ()
    prelude: tuple[Exchange, ...] = ()
    server_update: Callable[[jax.Array, ServerState, Any], tuple[ServerState, LocalInfo]] | None = None
    deployed: Callable[[Any, Any], Params] = lambda shared, agent_state: shared.params
    personal: bool = False
    pooled: bool = False
    message: Callable[[Any], Any] = like_params


def exchanges_of(algorithm: Algorithm) -> list[Exchange]:
    """Every exchange of `algorithm`: those of the warm-up, those of the prelude, and last the round's own."""
    return [*algorithm.warmup, *algorithm.prelude, Exchange(algorithm.local_update, algorithm.aggregate, algorithm.message)]


def with_exchanges(algorithm: Algorithm, exchanges: Sequence[Exchange]) -> Algorithm:
    """`algorithm` with others in the place of its exchanges, in the order of `exchanges_of`."""
    first, (*others, own) = len(algorithm.warmup), exchanges
    return algorithm._replace(**own._asdict(), warmup=tuple(others[:first]), prelude=tuple(others[first:]))


def no_weights() -> Weights:
    """What a direction without importance weights reports."""
    return Weights(*(jnp.zeros(()),) * 4)


def total(infos: LocalInfo) -> LocalInfo:
    """Adds up infos along their leading axis."""
    added = jax.tree.map(lambda x: jnp.sum(x, axis=0), infos.weights)
    return LocalInfo(total_usage(infos.usage), added._replace(largest=jnp.max(infos.weights.largest, axis=0)))


Direction = Callable[[jax.Array, Params, Any], tuple[Params, Any, LocalInfo]]


def local_steps(
    problem: Problem, direction: Direction, key: jax.Array, params: Params, memory: Any, count: int, local_lr: Any
) -> tuple[Params, Any, LocalInfo]:
    """theta_{k+1} = theta_k + eta u_k for K steps, with (u_k, memory, info) = direction(key, theta_k, memory)."""

    def step(carry: tuple, key: jax.Array) -> tuple:
        params, memory = carry
        u, memory, info = direction(key, params, memory)
        return (problem.project(trees.add_scaled(params, local_lr, u)), memory), info

    (params, memory), infos = jax.lax.scan(step, (params, memory), jax.random.split(key, count))
    return params, memory, total(infos)


def plain_gradient(problem: Problem, agent: Any) -> Direction:
    """u = g(tau | theta_k): the direction of PAvg, and of the others when beta = 1."""

    def direction(key: jax.Array, params: Params, memory: Any) -> tuple[Params, Any, LocalInfo]:
        sample, memory = problem.sample(key, params, agent, memory)
        return problem.gradient(sample, params), memory, LocalInfo(problem.usage(sample), no_weights())

    return direction


def mean_direction(deltas: Params, weights: jax.Array, count: int, local_lr: Any) -> tuple[Params, RoundInfo]:
    """u_{r+1} = 1/(eta N K) sum_i Delta_i over the agents present."""
    u = trees.scale(1.0 / (local_lr * count), mean(deltas, weights))
    drift = mean(jax.vmap(trees.norm_sq)(deltas), weights)
    return u, RoundInfo(trees.norm_sq(u), drift)


def mean_gradient(problem: Problem, batches: int) -> LocalUpdate:
    """The local update of an agent that sends the mean of g(tau | theta_r) over `batches` batches, and does not move."""

    def local_update(key: jax.Array, shared: Any, agent_state: Any, agent: Any) -> tuple[Params, Any, LocalInfo]:
        gradient = plain_gradient(problem, agent)

        def step(carry: tuple, key: jax.Array) -> tuple:
            added, memory = carry
            g, memory, info = gradient(key, shared.params, memory)
            return (trees.add_scaled(added, 1.0 / batches, g), memory), info

        start = (trees.zeros_like(shared.params), agent_state)
        (u, memory), infos = jax.lax.scan(step, start, jax.random.split(key, batches))
        return u, memory, total(infos)

    return local_update


def initial_direction(problem: Problem, batches: int, set_direction: Callable[[Any, Params], Any]) -> tuple[Exchange, ...]:
    """u_0 = mean of g over `batches` batches per agent at theta_0; nothing (u_0 = 0) if `batches` is 0."""
    if batches == 0:
        return ()

    def aggregate(state: ServerState, messages: Params, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
        u = mean(messages, weights)
        return state._replace(shared=set_direction(state.shared, u)), RoundInfo(trees.norm_sq(u), jnp.zeros(()))

    return (Exchange(mean_gradient(problem, batches), aggregate),)


def check_step(local_lr: Any, global_lr: Any, local_steps: int, beta: Any = 1.0) -> None:
    """Refuses hyper-parameters that mean nothing. Traced values (inside a sweep) are not looked at."""
    require(local_steps >= 1, f"local-steps must be at least 1, not {local_steps}")
    for name, value in (("local-lr", local_lr), ("global-lr", global_lr)):
        require(not isinstance(value, (int, float)) or value > 0, f"{name} must be positive, not {value}")
    require(not isinstance(beta, (int, float)) or 0.0 < beta <= 1.0, f"beta must be in (0, 1], not {beta}")


def is_one(beta: Any) -> bool:
    """Whether beta is known to be 1, so that the momentum term can be left out altogether."""
    return isinstance(beta, (int, float)) and beta == 1.0

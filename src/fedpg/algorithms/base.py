"""The contract of an algorithm: three pure functions, written for one agent.

    init(params)                                  -> ServerState(shared, private), agent_state
    local_update(key, shared, agent_state, agent) -> message, agent_state, LocalInfo
    aggregate(server_state, messages, present)    -> server_state, RoundInfo

`shared` is exactly what is broadcast and `message` exactly what is uploaded. `private` stays on the server, `agent_state` with its
agent. `present` is (N,): 0 marks an agent that is absent in this round. State is what the next round needs, Info what people read.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.errors import require
from fedpg.gradients.importance import Weights
from fedpg.learners.reinforce import Moved, Tilt, along, untilted
from fedpg.problem import Problem, Usage, total_usage
from fedpg.trees import Params, Tree

LEARNER_STREAM = 0x1EA2
"""Folded into the key of a batch for the learner's own random numbers."""


class ServerState(NamedTuple):
    """The server's state between rounds.

    Attributes:
        shared: broadcast to every agent at the start of a round.
        private: never leaves the server.
    """

    shared: Any
    private: Any = ()


class LocalInfo(NamedTuple):
    """Cost and importance-weight statistics of one local update. They add up, see `total`."""

    usage: Usage
    weights: Weights


class RoundInfo(NamedTuple):
    """Diagnostics of one round.

    Attributes:
        direction_sq: |u_{r+1}|^2.
        drift_sq: mean over agents of |theta_iK - theta_r|^2, where the server can know it; CALM: of |eta K m_i|^2.
    """

    direction_sq: jax.Array
    drift_sq: jax.Array


LocalUpdate = Callable[[jax.Array, Any, Any, Any], tuple[Any, Any, LocalInfo]]
"""The agent half of an exchange: (key, shared, agent_state, agent) -> message, agent_state, LocalInfo."""
Aggregate = Callable[[ServerState, Any, jax.Array], tuple[ServerState, RoundInfo]]
"""The server half: (server_state, messages, present) -> server_state, RoundInfo."""


def like_params(shared: Any) -> Params:
    """The default prediction: zeros shaped like the params, because nothing is known in advance."""
    return trees.zeros_like(shared.params)


class Exchange(NamedTuple):
    """One message from every agent and what the server makes of them.

    Attributes:
        local_update: the agent half.
        aggregate: the server half.
        predicted: shared -> the part of a message that follows from `shared`, with the message's structure, shapes and types; zeros
            where nothing can be predicted. Wrappers compress, clip and noise only the rest.
    """

    local_update: LocalUpdate
    aggregate: Aggregate
    predicted: Callable[[Any], Any] = like_params


class Algorithm(NamedTuple):
    """A federated algorithm.

    Attributes:
        name: what `--algorithm` calls it.
        init: params -> ServerState, agent_state.
        local_update: (key, shared, agent_state, agent) -> message, agent_state, LocalInfo.
        aggregate: (server_state, messages, present) -> server_state, RoundInfo.
        warmup: exchanges before round 0 (the scale of observations, the initial direction u_0).
        prelude: exchanges at the start of every round, before local_update and aggregate (Fast-FedPG's common gradient).
        server_update: (key, server_state, agents) -> server_state, LocalInfo, after aggregate in every round: the steps of a server
            with its own environment (FedPG-BR). `agents` has a leading axis N. None for servers that only aggregate.
        deployed: (shared, agent_state) -> the params that the agent would act with.
        personal: whether agents deploy their own params instead of common ones; `agent_state` must then have a field `params`.
        pooled: whether training happens in one place that holds all environments; `agent` then has a leading axis N.
        predicted: see `Exchange`.
        additive: whether messages add up over rounds, so that a part of one may be sent later.
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
    predicted: Callable[[Any], Any] = like_params
    additive: bool = True


def exchanges_of(algorithm: Algorithm) -> list[Exchange]:
    """Every exchange of `algorithm`: those of the warm-up, those of the prelude, and last the round's own."""
    return [*algorithm.warmup, *algorithm.prelude, Exchange(algorithm.local_update, algorithm.aggregate, algorithm.predicted)]


def with_exchanges(algorithm: Algorithm, exchanges: Sequence[Exchange]) -> Algorithm:
    """`algorithm` with its exchanges replaced, in the order of `exchanges_of`."""
    first, (*others, own) = len(algorithm.warmup), exchanges
    return algorithm._replace(**own._asdict(), warmup=tuple(others[:first]), prelude=tuple(others[first:]))


def no_weights() -> Weights:
    """What a direction without importance weights reports."""
    # The barrier keeps XLA from adding up these zeros over all agents of all rows while it compiles, which takes seconds for many.
    return Weights(*(jax.lax.optimization_barrier(jnp.zeros(())),) * 4)


def no_cost() -> LocalInfo:
    """What work without sampling reports."""
    count = jnp.zeros((), int)
    return LocalInfo(Usage(count, count, jnp.zeros(())), no_weights())


def total(infos: LocalInfo) -> LocalInfo:
    """Adds up infos along their leading axis."""
    added = jax.tree.map(lambda x: jnp.sum(x, axis=0), infos.weights)
    return LocalInfo(total_usage(infos.usage), added._replace(largest=jnp.max(infos.weights.largest, axis=0)))


def is_known(value: Any) -> bool:
    """Whether a hyper-parameter is a plain number, not a value traced inside a sweep."""
    return isinstance(value, (int, float))


def server_lr(local_lr: Any, global_lr: Any, local_steps: int, beta: Any = 1.0) -> Any:
    """lambda, or eta K if it is None; rejects step-sizes, K and beta that are out of range."""
    global_lr = local_lr * local_steps if global_lr is None else global_lr
    require(local_steps >= 1, f"local-steps must be at least 1, not {local_steps}")
    for name, value in (("local-lr", local_lr), ("global-lr", global_lr)):
        require(not is_known(value) or value > 0, f"{name} must be positive, not {value}")
    require(not is_known(beta) or 0.0 < beta <= 1.0, f"beta must be in (0, 1], not {beta}")
    return global_lr


def require_parts(name: str, problem: Problem, *parts: str) -> None:
    """Rejects a problem that lacks what the algorithm `name` needs: "gradient", "weighted_gradient", "hessian_vector"."""
    lacking = [part.replace("_", " ") for part in parts if getattr(problem, part) is None]
    require(not lacking, f"{name} needs a problem with a {' and a '.join(lacking)}: use pavg or fedavg-m here")


def sample_gradient(problem: Problem, key: jax.Array, params: Params, agent: Any, memory: Any) -> tuple[Params, Any, LocalInfo]:
    """g(tau|params) of a fresh batch, the agent's memory after it, and its cost; only for problems with gradients."""
    sample, memory = problem.sample(key, params, agent, memory)
    return problem.gradient(sample, params), memory, LocalInfo(problem.usage(sample), no_weights())


def sample_direction(
    problem: Problem, key: jax.Array, params: Params, agent: Any, memory: Any, local_lr: Any, tilt: Tilt = untilted
) -> tuple[Moved, Any, LocalInfo]:
    """Where the learner moves on a fresh batch at params, every small step tilted; the agent's memory after it, and its cost.

    With the learner `reinforce` the direction is tilt(g(tau|params), params).
    """
    sample, memory = problem.sample(key, params, agent, memory)
    learn = problem.direction or along(problem.gradient)
    moved, memory = learn(jax.random.fold_in(key, LEARNER_STREAM), sample, params, memory, tilt, local_lr)
    return moved, memory, LocalInfo(problem.usage(sample), no_weights())


def mean(messages: Tree, present: jax.Array) -> Tree:
    """The mean message of the agents present; what an absent agent sent is ignored, even if it is NaN.

    >>> mean(jnp.array([1.0, 3.0, jnp.nan]), jnp.array([1.0, 1.0, 0.0]))
    Array(2., dtype=float32)
    """
    share = present / jnp.maximum(jnp.sum(present), jnp.finfo(present.dtype).tiny)

    def one(leaf: jax.Array) -> jax.Array:
        shape = (-1,) + (1,) * (leaf.ndim - 1)
        return jnp.sum(jnp.where(present.reshape(shape) > 0, leaf, 0.0) * share.reshape(shape).astype(leaf.dtype), axis=0)

    return jax.tree.map(one, messages)


def mean_direction(deltas: Params, present: jax.Array, local_steps: int, local_lr: Any) -> tuple[Params, RoundInfo]:
    """u_{r+1} = 1/(eta N K) sum_i Delta_i over the agents present."""
    u = trees.scale(1.0 / (local_lr * local_steps), mean(deltas, present))
    return u, RoundInfo(trees.norm_sq(u), mean(jax.vmap(trees.norm_sq)(deltas), present))


def ascend(problem: Problem, params: Params, step: Any, direction: Params) -> Params:
    """params + step * direction, projected onto the allowed params."""
    return problem.project(trees.add_scaled(params, step, direction))


def mean_gradient(problem: Problem, batches: int, local_lr: Any = None) -> LocalUpdate:
    """The agent half of an exchange in which agents send the mean of g(tau|theta_r) over `batches` batches and do not move.

    With another learner than `reinforce` it is the mean of its directions with the step-size `local_lr`.
    """

    def local_update(key: jax.Array, shared: Any, memory: Any, agent: Any) -> tuple[Params, Any, LocalInfo]:
        def step(carry: tuple[Params, Any], key: jax.Array) -> tuple[tuple[Params, Any], LocalInfo]:
            added, memory = carry
            moved, memory, info = sample_direction(problem, key, shared.params, agent, memory, local_lr)
            return (trees.add_scaled(added, 1.0 / batches, moved.own), memory), info

        start = (trees.zeros_like(shared.params), memory)
        (u, memory), infos = jax.lax.scan(step, start, jax.random.split(key, batches))
        return u, memory, total(infos)

    return local_update


def initial_direction(problem: Problem, batches: int, local_lr: Any = None) -> tuple[Exchange, ...]:
    """The warm-up that sets shared.direction to u_0, the mean of g over `batches` batches per agent; none (u_0 = 0) for 0 batches.

    `local_lr` is for other learners, see `mean_gradient`.
    """

    def aggregate(state: ServerState, messages: Params, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        u = mean(messages, present)
        return state._replace(shared=state.shared._replace(direction=u)), RoundInfo(trees.norm_sq(u), jnp.zeros(()))

    return (Exchange(mean_gradient(problem, batches, local_lr), aggregate),) if batches else ()

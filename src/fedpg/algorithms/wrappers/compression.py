"""Compression of the upload, with error feedback.

    agent    x = m - m0 + e;    sends C(x);    keeps e' = x - C(x)       m: its message, e: what it has not sent yet, 0 at first
    server   the algorithm's own aggregate, of the m0 + C(x_i)           m0: the predicted part (`Exchange.predicted`), 0 for most

    float16  every leaf l as l / s in float16, and its scale s = max |l| in float32: nothing overflows
    top-k    of all d entries the ceil(keep d) largest in magnitude, each as an int32 index and its value

Over the rounds sum_r m0_r + C(x_r) = sum_r m_r - e_R: nothing is lost, it only arrives later. Each exchange of a round has its own
residual e. The warm-up is not compressed: its messages are sent once, so what was left out would never follow. Leaves that are not
floating-point numbers, and the moments of observations, which are merged and not added, are sent as they are.

A message that is not finite stays so in every form. Engines then keep the agent's old state, so that e is what it was. An encoded
message never decodes to larger numbers than it contains: a bound on its numbers bounds the message.

Reference: Karimireddy, Rebjock, Stich, Jaggi, "Error feedback fixes SignSGD and other gradient compression schemes", ICML 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms.base import Algorithm, Exchange, LocalInfo, RoundInfo, ServerState, exchanges_of, is_known, with_exchanges
from fedpg.algorithms.wrappers.base import Wrapper, real_leaves, require_messages
from fedpg.algorithms.wrappers.observation_scaling import MessageWithMoments
from fedpg.errors import choose, require
from fedpg.trees import Tree

KINDS = ("none", "float16", "top-k")
KEEP = 0.1
"""The default share of entries that top-k sends."""
TINY = float(jnp.finfo(jnp.float32).tiny)
PLACEHOLDER = object()
"""Marks the place of a compressed leaf among the others."""


class Float16(NamedTuple):
    """A message in float16.

    Attributes:
        message: the message with its compressed leaves in [-1, 1].
        scale: the factor of each of these leaves, (number of leaves,), float32.
    """

    message: Tree
    scale: jax.Array


class TopK(NamedTuple):
    """The largest entries of a message.

    Attributes:
        index: their places, counted over all compressed leaves one after another, (k,), int32.
        value: the entries, (k,).
        rest: the message without its compressed leaves.
    """

    index: jax.Array
    value: jax.Array
    rest: Tree


def additive_leaves(message: Tree) -> tuple[list[jax.Array], Callable[[list[Any]], Tree]]:
    """The leaves that are compressed, and the function that returns the message with other leaves in their place."""
    if isinstance(message, MessageWithMoments):
        real, replace = real_leaves(message.inner)
        return real, lambda others: message._replace(inner=replace(others))
    return real_leaves(message)


def encode_float16(message: Tree) -> Float16:
    """A leaf that is not finite has a scale that is not."""
    real, replace = additive_leaves(message)
    scales = [jnp.max(jnp.abs(leaf), initial=0.0).astype(jnp.float32) for leaf in real]
    halves = [(leaf / jnp.where(scale >= TINY, scale, 1.0)).astype(jnp.float16) for leaf, scale in zip(real, scales, strict=True)]
    return Float16(replace(halves), jnp.stack(scales))


def decode_float16(encoded: Float16, like: Tree) -> Tree:
    """The message; `like` has its shapes and types. No entry exceeds the scale of its leaf, even in a forged message."""
    real, replace = additive_leaves(encoded.message)
    types = [leaf.dtype for leaf in additive_leaves(like)[0]]
    return replace([jnp.clip(leaf.astype(t), -1, 1) * s.astype(t) for leaf, t, s in zip(real, types, encoded.scale, strict=True)])


def sent_entries(size: int, keep: float) -> int:
    """k = ceil(keep d).

    >>> sent_entries(30, 0.1), sent_entries(31, 0.1), sent_entries(5, 0.01)
    (3, 4, 1)
    """
    return max(1, math.ceil(keep * size - 1e-9))


def encode_top_k(message: Tree, keep: float) -> TopK:
    """If one entry is not finite, no value is."""
    real, replace = additive_leaves(message)
    flat = jnp.concatenate([leaf.reshape(-1) for leaf in real])
    _, index = jax.lax.top_k(jnp.abs(flat), sent_entries(flat.size, keep))
    value = jnp.where(trees.all_finite(flat), flat[index], jnp.nan)
    return TopK(index.astype(jnp.int32), value, replace([()] * len(real)))


def decode_top_k(encoded: TopK, like: Tree) -> Tree:
    """The message, 0 where nothing was sent; `like` has its shapes and types. Indices outside of it are ignored."""
    real, replace = additive_leaves(like)
    flat = jnp.zeros(trees.size(real), encoded.value.dtype).at[encoded.index].set(encoded.value, mode="drop")
    ends = [sum(leaf.size for leaf in real[: i + 1]) for i in range(len(real))]
    parts = zip(real, jnp.split(flat, ends[:-1]), strict=True)
    entries, others = iter([part.reshape(leaf.shape).astype(leaf.dtype) for leaf, part in parts]), iter(jax.tree.leaves(encoded.rest))
    leaves, structure = jax.tree.flatten(replace([PLACEHOLDER] * len(real)))
    return jax.tree.unflatten(structure, [next(entries) if leaf is PLACEHOLDER else next(others) for leaf in leaves])


class AgentState(NamedTuple):
    """The state of an agent whose messages are compressed.

    Attributes:
        inner: the algorithm's own.
        residual: e, as the compressed leaves of a message, for every exchange of a round.
    """

    inner: Any
    residual: tuple[list[jax.Array], ...]


def compressed(kind: str, keep: float = KEEP) -> Wrapper:
    """Compresses the messages of every round, with error feedback.

    Args:
        kind: none (switched off), float16 or top-k.
        keep: the share of entries that top-k sends, in (0, 1].
    """
    choose("compression", kind, KINDS)
    sound = not is_known(keep) or 0.0 < keep <= 1.0
    require(sound, f"keep is the share of entries that top-k sends: give a number above 0 and at most 1, not {keep}")
    decode = decode_float16 if kind == "float16" else decode_top_k

    def encode(message: Tree) -> Float16 | TopK:
        return encode_float16(message) if kind == "float16" else encode_top_k(message, keep)

    def uncompressed(exchange: Exchange) -> Exchange:
        def local_update(key: jax.Array, shared: Any, state: AgentState, agent: Any) -> tuple[Any, AgentState, LocalInfo]:
            message, inner, info = exchange.local_update(key, shared, state.inner, agent)
            return message, state._replace(inner=inner), info

        return exchange._replace(local_update=local_update)

    def with_feedback(number: int, exchange: Exchange) -> Exchange:
        def local_update(key: jax.Array, shared: Any, state: AgentState, agent: Any) -> tuple[Any, AgentState, LocalInfo]:
            message, inner, info = exchange.local_update(key, shared, state.inner, agent)
            (real, replace), (known, _) = additive_leaves(message), additive_leaves(exchange.predicted(shared))
            unsent = [m - m0 + e for m, m0, e in zip(real, known, state.residual[number], strict=True)]
            encoded = encode(replace(unsent))
            left = trees.subtract(unsent, additive_leaves(decode(encoded, message))[0])
            residual = (*state.residual[:number], left, *state.residual[number + 1 :])
            return encoded, AgentState(inner, residual), info

        def aggregate(state: ServerState, messages: Any, present: jax.Array) -> tuple[ServerState, RoundInfo]:
            predicted = exchange.predicted(state.shared)

            def read(encoded: Float16 | TopK) -> Tree:
                (real, replace), (known, _) = additive_leaves(decode(encoded, predicted)), additive_leaves(predicted)
                return replace([m0 + x for m0, x in zip(known, real, strict=True)])

            return exchange.aggregate(state, jax.vmap(read)(messages), present)

        return Exchange(local_update, aggregate, lambda shared: jax.eval_shape(encode, exchange.predicted(shared)))

    def wrap(algorithm: Algorithm) -> Algorithm:
        require_messages(algorithm, "--compression")
        divisible = algorithm.additive or kind != "top-k"
        require(divisible, f"the messages of {algorithm.name} do not add up, so none of it can be sent later: use --compression float16")
        rounds = exchanges_of(algorithm)[len(algorithm.warmup) :]

        def init(params: Any) -> tuple[ServerState, AgentState]:
            server, agent_state = algorithm.init(params)
            shapes = [additive_leaves(exchange.predicted(server.shared))[0] for exchange in rounds]
            return server, AgentState(agent_state, tuple([jnp.zeros(leaf.shape, leaf.dtype) for leaf in leaves] for leaves in shapes))

        exchanges = [*map(uncompressed, algorithm.warmup), *(with_feedback(number, exchange) for number, exchange in enumerate(rounds))]
        changed = with_exchanges(algorithm, exchanges)
        return changed._replace(init=init, deployed=lambda shared, state: algorithm.deployed(shared, state.inner))

    return Wrapper("compressed", None if kind == "none" else wrap)

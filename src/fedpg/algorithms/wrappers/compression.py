"""Compression of the upload, with error feedback.

    agent    x = m - m0 + e;    sends C(x);    keeps e' = x - C(x)       m: its message, e: what it has not sent yet, 0 at first
    server   the algorithm's own aggregate, of the m0 + C(x_i)           m0: the predicted part (`Exchange.predicted`), 0 for most

    float16  every leaf l as l / s in float16, and its scale s = max |l| in float32: nothing overflows
    top-k    of all d entries the ceil(keep d) largest in magnitude, each as an int32 index and its value

Over the rounds sum_r m0_r + C(x_r) = sum_r m_r - e_R: nothing is lost, it only arrives later. Each exchange of a round has its own
residual e. The warm-up is not compressed: its messages are sent once, so what was left out would never follow. Only the real leaves
of a message are compressed, see `fedpg.algorithms.wrappers.base.Parts`.

A message that is not finite stays so in every form. Engines then keep the agent's old state, so that e is what it was. An encoded
message never decodes to larger numbers than it contains: a bound on its numbers bounds the message.

Reference: Karimireddy, Rebjock, Stich, Jaggi, "Error feedback fixes SignSGD and other gradient compression schemes", ICML 2019.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fedpg import trees
from fedpg.algorithms.base import Algorithm, Exchange, LocalInfo, RoundInfo, ServerState, exchanges_of, is_known, with_exchanges
from fedpg.algorithms.wrappers.base import Wrapper, parts, require_messages
from fedpg.errors import choose, require
from fedpg.trees import Tree

KINDS = ("none", "float16", "top-k")
KEEP = 0.1
"""The default share of entries that top-k sends."""
TINY = float(jnp.finfo(jnp.float32).tiny)


class Float16(NamedTuple):
    """A message in float16: its real leaves in [-1, 1], the factor of each, (number of leaves,), float32, and its other leaves."""

    leaves: list[jax.Array]
    scale: jax.Array
    others: list[Any]


class TopK(NamedTuple):
    """The k largest entries of a message: their places in the vector of all real leaves, int32, their values, and its other leaves."""

    index: jax.Array
    value: jax.Array
    others: list[Any]


def encode_float16(message: Tree) -> Float16:
    """A leaf that is not finite has a scale that is not."""
    real, others, _ = parts(message)
    scales = [jnp.max(jnp.abs(leaf), initial=0.0).astype(jnp.float32) for leaf in real]
    halves = [(leaf / jnp.where(scale >= TINY, scale, 1.0)).astype(jnp.float16) for leaf, scale in zip(real, scales, strict=True)]
    return Float16(halves, jnp.stack(scales), others)


def decode_float16(encoded: Float16, like: Tree) -> Tree:
    """The message; `like` has its shapes and types. No entry exceeds the scale of its leaf, even in a forged message."""
    real, _, join = parts(like)
    types = [leaf.dtype for leaf in real]
    leaves = [jnp.clip(leaf.astype(t), -1, 1) * s.astype(t) for leaf, t, s in zip(encoded.leaves, types, encoded.scale, strict=True)]
    return join(leaves, encoded.others)


def encode_top_k(message: Tree, keep: float) -> TopK:
    """If one entry is not finite, no value is."""
    real, others, _ = parts(message)
    flat, _ = ravel_pytree(real)
    count = max(1, math.ceil(keep * flat.size - 1e-9))  # 0.1 * 30 is 3, whatever its last digit
    _, index = jax.lax.top_k(jnp.abs(flat), count)
    return TopK(index.astype(jnp.int32), jnp.where(trees.all_finite(flat), flat[index], jnp.nan), others)


def decode_top_k(encoded: TopK, like: Tree) -> Tree:
    """The message, 0 where nothing was sent; `like` has its shapes and types. Indices outside of it are ignored."""
    real, _, join = parts(like)
    flat, leaves_of = ravel_pytree(trees.zeros_like(real))
    return join(leaves_of(flat.at[encoded.index].set(encoded.value, mode="drop")), encoded.others)


class AgentState(NamedTuple):
    """The algorithm's own state of an agent, and e, like the real leaves of a message, for every exchange of a round."""

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
            (real, others, join), known = parts(message), parts(exchange.predicted(shared)).real
            unsent = [m - m0 + e for m, m0, e in zip(real, known, state.residual[number], strict=True)]
            encoded = encode(join(unsent, others))
            left = trees.subtract(unsent, parts(decode(encoded, message)).real)
            residual = (*state.residual[:number], left, *state.residual[number + 1 :])
            return encoded, AgentState(inner, residual), info

        def aggregate(state: ServerState, messages: Any, present: jax.Array) -> tuple[ServerState, RoundInfo]:
            predicted = exchange.predicted(state.shared)

            def read(encoded: Float16 | TopK) -> Tree:
                (real, others, join), known = parts(decode(encoded, predicted)), parts(predicted).real
                return join([m0 + x for m0, x in zip(known, real, strict=True)], others)

            return exchange.aggregate(state, jax.vmap(read)(messages), present)

        return Exchange(local_update, aggregate, lambda shared: jax.eval_shape(encode, exchange.predicted(shared)))

    def wrap(algorithm: Algorithm) -> Algorithm:
        require_messages(algorithm, "--compression")
        divisible = algorithm.additive or kind != "top-k"
        require(
            divisible, f"the messages of {algorithm.name} do not add up, so no part of one can be sent later: use --compression float16"
        )
        rounds = exchanges_of(algorithm)[len(algorithm.warmup) :]

        def init(params: Any) -> tuple[ServerState, AgentState]:
            server, agent_state = algorithm.init(params)
            return server, AgentState(
                agent_state, tuple(trees.zeros_like(parts(exchange.predicted(server.shared)).real) for exchange in rounds)
            )

        exchanges = [*map(uncompressed, algorithm.warmup), *(with_feedback(number, exchange) for number, exchange in enumerate(rounds))]
        changed = with_exchanges(algorithm, exchanges)
        return changed._replace(init=init, deployed=lambda shared, state: algorithm.deployed(shared, state.inner))

    return Wrapper("compressed", None if kind == "none" else wrap)

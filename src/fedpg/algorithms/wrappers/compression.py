"""Compression of the upload, around any algorithm, with error feedback.

    agent    x = m - m0 + e;    sends C(x);    keeps e' = x - C(x)       m: its message, e: what it still owes, 0 at first
    server   the algorithm's own aggregate, of the m0 + C(x_i)           m0: what it expects (`Exchange.message`), for most 0

    none     C(x) = x, which is the algorithm itself
    float16  two bytes for each entry of x, see `fedpg.algorithms.wrappers.packing`
    top-k    of all d entries of x the ceil(keep d) largest in magnitude

Over the rounds sum_r m0_r + C(x_r) = sum_r m_r - e_R: nothing is lost, it only comes later. Each exchange of a round has a residual e of
its own. The warm-up is not compressed: its messages are sent once, and what was left out would never follow. Leaves that are not
real numbers, and the moments of observations, which are merged and not added, travel as they are.

A message that is not finite stays so in every form, and the engines then keep the agent's old state: e is what it was.

Reference: Karimireddy, Rebjock, Stich, Jaggi, "Error feedback fixes SignSGD and other gradient compression schemes", ICML 2019.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms.base import Algorithm, Exchange, LocalInfo, RoundInfo, ServerState, exchanges_of, with_exchanges
from fedpg.algorithms.wrappers.packing import Half, Sparse, additive_part, from_half, from_sparse, to_half, to_sparse
from fedpg.errors import choose, require
from fedpg.trees import Tree

KINDS = ("none", "float16", "top-k")
KEEP = 0.1
"""The share of entries that top-k sends unless one says otherwise."""
WHOLE = ("fapi",)
"""Algorithms whose message is a table of probabilities: no sum, and nothing can be left out of it."""


class AgentState(NamedTuple):
    """Attributes:
    inner: the algorithm's own.
    residual: e, as the real leaves of a message, for every exchange of a round.
    """

    inner: Any
    residual: tuple[list[jax.Array], ...]


def check(kind: str, keep: Any = KEEP) -> None:
    """Refuses what `compressed` cannot do."""
    choose("compression", kind, KINDS)
    sound = not isinstance(keep, (int, float)) or 0.0 < keep <= 1.0
    require(sound, f"keep is the share of entries that top-k sends: give a number above 0 and at most 1, not {keep}")


def compressed(algorithm: Algorithm, kind: str, keep: float = KEEP) -> Algorithm:
    """`algorithm` with the messages of its rounds compressed; with "none", itself.

    Args:
        algorithm: whose messages.
        kind: none, float16 or top-k.
        keep: the share of entries that top-k sends, in (0, 1].
    """
    check(kind, keep)
    if kind == "none":
        return algorithm
    require(not (algorithm.personal or algorithm.pooled), f"{algorithm.name} sends no messages: leave out --compression")
    whole = kind == "top-k" and algorithm.name in WHOLE
    require(not whole, f"{algorithm.name} sends probabilities, of which none can be left out: use --compression float16")
    rounds = exchanges_of(algorithm)[len(algorithm.warmup) :]
    unpack = from_half if kind == "float16" else from_sparse

    def pack(message: Tree) -> Half | Sparse:
        return to_half(message) if kind == "float16" else to_sparse(message, keep)

    def init(params: Any) -> tuple[ServerState, AgentState]:
        server, agent_state = algorithm.init(params)
        shapes = [additive_part(exchange.message(server.shared))[0] for exchange in rounds]
        return server, AgentState(agent_state, tuple([jnp.zeros(leaf.shape, leaf.dtype) for leaf in leaves] for leaves in shapes))

    def plain(exchange: Exchange) -> Exchange:
        def local_update(key: jax.Array, shared: Any, state: AgentState, agent: Any) -> tuple[Any, AgentState, LocalInfo]:
            message, inner, info = exchange.local_update(key, shared, state.inner, agent)
            return message, state._replace(inner=inner), info

        return exchange._replace(local_update=local_update)

    def fed_back(number: int, exchange: Exchange) -> Exchange:
        def local_update(key: jax.Array, shared: Any, state: AgentState, agent: Any) -> tuple[Any, AgentState, LocalInfo]:
            message, inner, info = exchange.local_update(key, shared, state.inner, agent)
            (real, put), (known, _) = additive_part(message), additive_part(exchange.message(shared))
            owed = [m - m0 + e for m, m0, e in zip(real, known, state.residual[number], strict=True)]
            packed = pack(put(owed))
            left = trees.subtract(owed, additive_part(unpack(packed, message))[0])
            residual = (*state.residual[:number], left, *state.residual[number + 1 :])
            return packed, AgentState(inner, residual), info

        def aggregate(state: ServerState, messages: Any, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
            expected = exchange.message(state.shared)

            def read(packed: Half | Sparse) -> Tree:
                (real, put), (known, _) = additive_part(unpack(packed, expected)), additive_part(expected)
                return put([m0 + x for m0, x in zip(known, real, strict=True)])

            return exchange.aggregate(state, jax.vmap(read)(messages), weights)

        return Exchange(local_update, aggregate, lambda shared: jax.eval_shape(pack, exchange.message(shared)))

    changed = [*map(plain, algorithm.warmup), *(fed_back(number, exchange) for number, exchange in enumerate(rounds))]
    return with_exchanges(algorithm, changed)._replace(init=init, deployed=lambda shared, state: algorithm.deployed(shared, state.inner))

"""How a server makes one message of many.

Every function takes messages with a leading axis N and weights (N,), 0 = absent, and returns one message. An absent agent has no
vote, and what it sent is never looked at. Beyond that only `mean` looks at the size of a weight; the robust ones, in
`fedpg.algorithms.wrappers.votes`, give every agent present one vote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedpg.algorithms.wrappers import votes
from fedpg.errors import choose, require
from fedpg.trees import Tree

Aggregator = Callable[[Tree, jax.Array], Tree]
TRIM = 0.3
"""The share of attackers that is reckoned with unless one says otherwise."""
NAMES = ("mean", *votes.VOTES)


def mean(messages: Tree, weights: jax.Array) -> Tree:
    """Weighted mean over the leading axis; what an absent agent (weight 0) sent is never looked at, not even if NaN.

    >>> mean(jnp.array([1.0, 3.0, jnp.nan]), jnp.array([1.0, 1.0, 0.0]))
    Array(2., dtype=float32)
    """
    present = weights > 0
    share = weights / jnp.maximum(jnp.sum(weights), jnp.finfo(weights.dtype).tiny)

    def one(leaf: jax.Array) -> jax.Array:
        shape = (-1,) + (1,) * (leaf.ndim - 1)
        return jnp.sum(jnp.where(present.reshape(shape), leaf, 0.0) * share.reshape(shape).astype(leaf.dtype), axis=0)

    return jax.tree.map(one, messages)


def real_part(messages: Tree) -> tuple[list[jax.Array], Callable[[list[jax.Array]], Tree]]:
    """The leaves of messages that are real numbers, and the function that puts others of the same shapes in their place."""
    leaves, structure = jax.tree.flatten(messages)
    real = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]

    def put(others: list[jax.Array]) -> Tree:
        given = iter(others)
        return jax.tree.unflatten(structure, [next(given) if vote else leaf for leaf, vote in zip(leaves, real, strict=True)])

    return [leaf for leaf, vote in zip(leaves, real, strict=True) if vote], put


def as_rows(messages: Tree) -> tuple[jax.Array, Callable[[jax.Array], Tree]]:
    """Messages as (N, d) rows, and the function that makes a message of one row."""
    leaves, structure = jax.tree.flatten(messages)
    rows = jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)

    def message(row: jax.Array) -> Tree:
        made, begin = [], 0
        for leaf in leaves:
            end = begin + leaf[0].size
            made.append(row[begin:end].reshape(leaf.shape[1:]).astype(leaf.dtype))
            begin = end
        return jax.tree.unflatten(structure, made)

    return rows, message


def make(name: str, trim: Any = TRIM) -> Aggregator:
    """The aggregator called `name`; `trim` is the share of attackers that trimmed-mean and krum reckon with, below 1/2."""
    choose("aggregation", name, NAMES)
    require(not isinstance(trim, (int, float)) or 0.0 <= trim < 0.5, f"trim must be from 0 to below 0.5, not {trim}")
    if name == "mean":
        return mean

    def aggregator(messages: Tree, weights: jax.Array) -> Tree:
        rows, message = as_rows(messages)
        return message(votes.VOTES[name](rows, weights > 0, trim))

    return aggregator

"""What the wrappers share: their type, and access to the real numbers in a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.algorithms.base import Algorithm
from fedpg.errors import require
from fedpg.trees import Tree


class Wrapper(NamedTuple):
    """A change to an algorithm, applied by `fedpg.chain`.

    Attributes:
        name: its place in the chain, one of `fedpg.algorithms.wrappers.ORDER`.
        wrap: algorithm -> algorithm; None if the wrapper is switched off.
    """

    name: str
    wrap: Callable[[Algorithm], Algorithm] | None


def require_messages(algorithm: Algorithm, flags: str) -> None:
    """Rejects an algorithm whose agents send nothing; `flags` are the options that asked for the wrapper."""
    require(not (algorithm.personal or algorithm.pooled), f"{algorithm.name} sends no messages: leave out {flags}")


def real_leaves(message: Tree) -> tuple[list[jax.Array], Callable[[list[Any]], Tree]]:
    """The floating-point leaves of a message, and the function that returns the message with other leaves in their place."""
    leaves, structure = jax.tree.flatten(message)
    real = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]

    def replace(others: list[Any]) -> Tree:
        given = iter(others)
        return jax.tree.unflatten(structure, [next(given) if own else leaf for leaf, own in zip(leaves, real, strict=True)])

    return [leaf for leaf, own in zip(leaves, real, strict=True) if own], replace


def as_rows(messages: Tree) -> tuple[jax.Array, Callable[[jax.Array], Tree]]:
    """Messages as the rows of an (N, d) matrix, and the function that turns one row back into a message."""
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

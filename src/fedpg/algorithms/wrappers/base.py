"""What the wrappers share: their type, and access to the numbers in a message."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fedpg import trees
from fedpg.algorithms.base import Algorithm
from fedpg.errors import require
from fedpg.moments import Moments
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


class Parts(NamedTuple):
    """The leaves of a message.

    Attributes:
        real: the floating-point leaves, which are averaged, attacked, clipped, noised and compressed.
        others: the rest, which is sent as it is: whole numbers, and moments of observations, which are merged and not added.
        join: (real, others) -> the message with these leaves.
    """

    real: list[jax.Array]
    others: list[Any]
    join: Callable[[list[Any], list[Any]], Tree]


def parts(message: Tree) -> Parts:
    """Splits a message, or messages with a leading axis, into its leaves."""
    leaves, structure = jax.tree.flatten(message, is_leaf=lambda x: isinstance(x, Moments))
    is_real = [not isinstance(leaf, Moments) and jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]

    def join(real: list[Any], others: list[Any]) -> Tree:
        given, rest = iter(real), iter(others)
        return jax.tree.unflatten(structure, [next(given) if own else next(rest) for own in is_real])

    real = [leaf for leaf, own in zip(leaves, is_real, strict=True) if own]
    return Parts(real, [leaf for leaf, own in zip(leaves, is_real, strict=True) if not own], join)


def as_rows(messages: Tree) -> tuple[jax.Array, Callable[[jax.Array], Tree]]:
    """Messages as the rows of an (N, d) matrix, and the function that turns one row back into a message."""
    _, message = ravel_pytree(trees.take(messages, 0))
    return jax.vmap(lambda one: ravel_pytree(one)[0])(messages), message

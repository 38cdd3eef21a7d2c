"""A message as fewer bytes, and back.

    float16  every real leaf l as l / s rounded to float16, and s = max |l|, one float32 per leaf: nothing overflows
    top-k    of all d real entries the ceil(keep d) largest in magnitude, each as an int32 index and its value; 0 elsewhere

Leaves that are not real numbers, and the moments of observations, which are merged and not added, travel as they are. What is read
is never larger than what was sent says: a bound on the numbers in a packed message bounds the message.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms.aggregation import real_part
from fedpg.algorithms.wrappers import observation_scaling as observations
from fedpg.trees import Tree

TINY = float(jnp.finfo(jnp.float32).tiny)
HOLE = object()
"""Where a real leaf goes, while only the others are there."""


class Half(NamedTuple):
    """Attributes:
    message: the message with float16 leaves in [-1, 1].
    scale: what to multiply each of them with, (number of leaves,), float32.
    """

    message: Tree
    scale: jax.Array


class Sparse(NamedTuple):
    """Attributes:
    index: where, counted over all real leaves one after another, (k,), int32.
    value: what, (k,).
    rest: the message without its real leaves.
    """

    index: jax.Array
    value: jax.Array
    rest: Tree


def additive_part(message: Tree) -> tuple[list[jax.Array], Callable[[list[Any]], Tree]]:
    """The leaves that are compressed, and the function that puts others in their place."""
    if isinstance(message, observations.Message):
        real, put = real_part(message.inner)
        return real, lambda others: message._replace(inner=put(others))
    return real_part(message)


def sent_entries(size: int, keep: float) -> int:
    """k = ceil(keep d).

    >>> sent_entries(30, 0.1), sent_entries(31, 0.1), sent_entries(5, 0.01)
    (3, 4, 1)
    """
    return max(1, math.ceil(keep * size - 1e-9))


def to_half(message: Tree) -> Half:
    """The message in float16. A leaf that is not finite has a scale that is not."""
    real, put = additive_part(message)
    scales = [jnp.max(jnp.abs(leaf), initial=0.0).astype(jnp.float32) for leaf in real]
    halves = [(leaf / jnp.where(scale >= TINY, scale, 1.0)).astype(jnp.float16) for leaf, scale in zip(real, scales, strict=True)]
    return Half(put(halves), jnp.stack(scales))


def from_half(half: Half, like: Tree) -> Tree:
    """What the server reads; `like` has the shapes and types of the message. No entry is larger than its leaf's scale, whoever sent it."""
    real, put = additive_part(half.message)
    types = [leaf.dtype for leaf in additive_part(like)[0]]
    return put([jnp.clip(leaf.astype(t), -1, 1) * s.astype(t) for leaf, t, s in zip(real, types, half.scale, strict=True)])


def to_sparse(message: Tree, keep: float) -> Sparse:
    """The largest entries of the message. Of one that is not finite, no value is."""
    real, put = additive_part(message)
    flat = jnp.concatenate([leaf.reshape(-1) for leaf in real])
    _, index = jax.lax.top_k(jnp.abs(flat), sent_entries(flat.size, keep))
    value = jnp.where(trees.all_finite(flat), flat[index], jnp.nan)
    return Sparse(index.astype(jnp.int32), value, put([()] * len(real)))


def from_sparse(sparse: Sparse, like: Tree) -> Tree:
    """What the server reads; `like` has the shapes and types of the message. An index outside of it is passed over."""
    real, put = additive_part(like)
    flat = jnp.zeros(trees.size(real), sparse.value.dtype).at[sparse.index].set(sparse.value, mode="drop")
    ends = [sum(leaf.size for leaf in real[: i + 1]) for i in range(len(real))]
    parts = zip(real, jnp.split(flat, ends[:-1]), strict=True)
    entries, others = iter([part.reshape(leaf.shape).astype(leaf.dtype) for leaf, part in parts]), iter(jax.tree.leaves(sparse.rest))
    leaves, structure = jax.tree.flatten(put([HOLE] * len(real)))
    return jax.tree.unflatten(structure, [next(entries) if leaf is HOLE else next(others) for leaf in leaves])

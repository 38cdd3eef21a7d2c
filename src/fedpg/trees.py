"""Arithmetic on pytrees: parameters, directions, messages."""

from typing import Any

import jax
import jax.numpy as jnp

Tree = Any
Params = Any


def zeros_like(tree: Tree) -> Tree:
    return jax.tree.map(jnp.zeros_like, tree)


def subtract(a: Tree, b: Tree) -> Tree:
    return jax.tree.map(jnp.subtract, a, b)


def add_scaled(a: Tree, scale: Any, b: Tree) -> Tree:
    """a + scale * b."""
    return jax.tree.map(lambda x, y: x + scale * y, a, b)


def scale(factor: Any, tree: Tree) -> Tree:
    return jax.tree.map(lambda x: factor * x, tree)


def norm_sq(tree: Tree) -> jax.Array:
    """Sum of squares of every entry, ()."""
    return sum((jnp.sum(jnp.square(x)) for x in jax.tree.leaves(tree)), jnp.zeros(()))


def mean_axis0(tree: Tree) -> Tree:
    return jax.tree.map(lambda x: x.mean(0), tree)


def select(condition: jax.Array, a: Tree, b: Tree) -> Tree:
    """`a` where the scalar `condition` holds, else `b`."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def all_finite(tree: Tree) -> jax.Array:
    """Whether every entry of every floating leaf is finite, ()."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    # One vector instead of a result per leaf: every leaf would be a kernel of its own, which takes longer to compile than to run.
    return jnp.all(jnp.concatenate([jnp.isfinite(x).ravel() for x in leaves] or [jnp.ones(1, bool)]))


def size(tree: Tree) -> int:
    """Number of entries in all leaves; also works on shapes from `jax.eval_shape`."""
    return sum(int(x.size) for x in jax.tree.leaves(tree))


def nbytes(tree: Tree) -> int:
    """Bytes of all leaves; also works on shapes from `jax.eval_shape`."""
    return sum(int(x.size) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def broadcast(tree: Tree, n: int) -> Tree:
    """Adds a leading axis of length n to every leaf by repetition."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *jnp.shape(x))), tree)


def stack(trees: list[Tree]) -> Tree:
    return jax.tree.map(lambda *xs: jnp.stack(xs), *trees)


def take(tree: Tree, index: Any) -> Tree:
    """Entry `index` of the leading axis of every leaf."""
    return jax.tree.map(lambda x: x[index], tree)


def leading_axis(tree: Tree) -> int:
    """The length of the leading axis that all leaves share."""
    return int(jax.tree.leaves(tree)[0].shape[0])

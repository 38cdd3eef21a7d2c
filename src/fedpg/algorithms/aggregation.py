"""How a server makes one message of many."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedpg.trees import Tree


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

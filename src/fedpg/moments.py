"""Means and variances of observations, in a form that merges: an agent can send them instead of observations."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Moments(NamedTuple):
    """The moments of a set of observations.

    Attributes:
        count: number of observations, ().
        mean: of each entry, (D,).
        squares: sum of squared distances from the mean, (D,).
    """

    count: jax.Array
    mean: jax.Array
    squares: jax.Array


def nothing(size: int) -> Moments:
    """The moments of no observation."""
    return Moments(jnp.zeros(()), jnp.zeros(size), jnp.zeros(size))


def observed(values: jax.Array, mask: jax.Array) -> Moments:
    """The moments of the rows of `values` (n, D) where `mask` (n,) is 1."""
    each = Moments(mask, jnp.where(mask[:, None] > 0, values, 0.0), jnp.zeros_like(values))
    return merge(each)


def merge(parts: Moments) -> Moments:
    """The moments of the union of several sets; `parts` has a leading axis (Chan, Golub and LeVeque, 1983).

    >>> one, two = Moments(1.0, jnp.array([1.0]), jnp.zeros(1)), Moments(1.0, jnp.array([3.0]), jnp.zeros(1))
    >>> merge(jax.tree.map(lambda *x: jnp.stack(jnp.asarray(x)), one, two)).squares
    Array([2.], dtype=float32)
    """
    count = jnp.sum(parts.count)
    share = (parts.count / jnp.maximum(count, 1.0))[:, None]
    mean = jnp.sum(share * parts.mean, axis=0)
    between = parts.count[:, None] * jnp.square(parts.mean - mean)
    return Moments(count, mean, jnp.sum(parts.squares + between, axis=0))


def variance(moments: Moments) -> jax.Array:
    """The variance of each entry, (D,)."""
    return moments.squares / jnp.maximum(moments.count, 1.0)

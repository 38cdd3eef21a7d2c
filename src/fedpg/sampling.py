"""Random choices from uniform numbers that were drawn beforehand, and differentiable lookup."""

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32


def uniforms(key: jax.Array, n: int) -> jax.Array:
    """n uniform numbers in [0, 1), (n,): the randomness of n calls of `pick`."""
    return jax.random.uniform(key, (n,))


def uniform_pairs(key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
    """Two uniform numbers in [0, 1) for each of n steps, (n,) and (n,): the randomness of n calls of two `pick`.

    The numbers of step t are the two words of one block of threefry2x32, with the counter (t, 0): half the work of `uniforms`, and no
    step needs another. `fedpg.native` computes the same blocks. Of each word the upper 24 bits count.
    """
    counters = jnp.concatenate([jnp.arange(n, dtype=jnp.uint32), jnp.zeros(n, jnp.uint32)])
    words = threefry_2x32(jax.random.key_data(key)[:2], counters).reshape(2, n)
    first, second = (words >> 8).astype(float) * 2.0**-24
    return first, second


def pick(uniform: jax.Array, probabilities: jax.Array) -> jax.Array:
    """The index on which a uniform number falls in the cumulative distribution of (A,) probabilities, ().

    >>> [int(pick(jnp.array(u), jnp.array([0.25, 0.0, 0.75]))) for u in (0.0, 0.2, 0.25, 0.99)]
    [0, 0, 2, 2]
    """
    cumulative = jnp.cumsum(probabilities)
    index = jnp.sum(cumulative <= uniform * cumulative[-1])  # rounding may leave the last one below 1
    return jnp.minimum(index, probabilities.shape[0] - 1).astype(jnp.int32)


def look_up(values: jax.Array, index: jax.Array) -> jax.Array:
    """values[index], as a product with a one-hot vector, ().

    The gradient of a product is a product. The gradient of indexing is a scatter, which a GPU adds up slowly or in no fixed order.

    >>> look_up(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array(1)).tolist()
    [3.0, 4.0]
    """
    return jax.nn.one_hot(index, values.shape[0], dtype=values.dtype) @ values

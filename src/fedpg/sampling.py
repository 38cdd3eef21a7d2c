"""Random choices from uniform numbers that were drawn beforehand, and differentiable lookup."""

import jax
import jax.numpy as jnp


def uniforms(key: jax.Array, n: int) -> jax.Array:
    """n uniform numbers in [0, 1), (n,): the randomness of n calls of `pick`."""
    return jax.random.uniform(key, (n,))


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

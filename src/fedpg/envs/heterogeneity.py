"""How one number, `heterogeneity`, spreads agents: 0 = identical, no upper end.

Physical constants are spread on a log scale, so that they stay positive however large the number is.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def positions(n: int) -> jax.Array:
    """Where each of n agents stands between -1 and 1, evenly; one agent stands at 0. Shape (n,)."""
    return jnp.linspace(-1.0, 1.0, n) if n > 1 else jnp.zeros(1)


def shuffled_positions(key: jax.Array, n: int) -> jax.Array:
    """The same places handed out in random order, (n,): the spread does not vary from seed to seed, the mixture does."""
    return jax.random.permutation(key, positions(n))


def log_spread(heterogeneity: float, factor: float, place: jax.Array) -> jax.Array:
    """factor^(heterogeneity * place), (n,): what a constant is multiplied by; from 1/factor to factor at heterogeneity 1.

    >>> log_spread(1.0, 2.0, positions(3)).tolist()
    [0.5, 1.0, 2.0]
    """
    return jnp.power(factor, heterogeneity * place)


def mix(share: float, own: jax.Array, common: jax.Array) -> jax.Array:
    """share * own + (1 - share) * common: the paper's kappa."""
    return share * own + (1.0 - share) * common

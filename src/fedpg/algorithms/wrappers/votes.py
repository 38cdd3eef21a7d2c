"""Robust means: one vector of n, some of which may lie. Rows x_i, (N, d); only those of agents present are looked at.

With f = ceil(trim n) of them taken for attackers, at most (n-1)/2:

    median            of each entry
    trimmed-mean      of each entry, without the f smallest and the f largest
    krum              the x_i with the least sum of |x_i - x_j|^2 over its n - f - 2 nearest neighbours
    geometric-median  argmin_z sum_i |x_i - z|
    norm-clipping     mean of x_i min(1, c / |x_i|), c the median of |x_i|

Yin et al., "Byzantine-robust distributed learning", 2018 (median, trimmed mean); Blanchard et al., "Machine learning with
adversaries", 2017 (Krum); Pillutla et al., "Robust aggregation for federated learning", 2022 (geometric median).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

ITERATIONS = 50
"""Of Weiszfeld's algorithm: it converges linearly, and each costs no more than a mean."""
SMOOTHING = 1e-4
"""Distances below this share of their median count as that much: Weiszfeld's weights 1/|x_i - z| stay finite on a message."""


def assumed(trim: Any, count: jax.Array) -> jax.Array:
    """f: how many of `count` agents are taken for attackers, fewer than half of them, ().

    >>> [int(assumed(0.3, jnp.array(n))) for n in (1, 2, 3, 5, 10)]
    [0, 0, 1, 2, 3]
    """
    wanted = jnp.ceil(trim * count - 1e-4)  # 0.3 * 10 is 3, whatever its last digit
    return jnp.clip(wanted.astype(int), 0, jnp.maximum(count - 1, 0) // 2)


def distances_sq(rows: jax.Array, present: jax.Array) -> jax.Array:
    """|x_i - x_j|^2 of (N, d) rows; infinite where either is absent, (N, N)."""
    rows = jnp.where(present[:, None], rows, 0.0)
    apart = jax.vmap(lambda row: jnp.sum(jnp.square(rows - row), axis=1))(rows)
    return jnp.where(present[:, None] & present, apart, jnp.inf)


def middle(rows: jax.Array, present: jax.Array, cut: jax.Array) -> jax.Array:
    """The mean of each entry over the agents present, without the `cut` smallest and the `cut` largest; 0 if nobody is, (d,)."""
    count, rank = jnp.sum(present), jnp.arange(len(rows))[:, None]
    ordered = jnp.sort(jnp.where(present[:, None], rows, jnp.inf), axis=0)
    kept = (rank >= cut) & (rank < count - cut)
    return jnp.sum(jnp.where(kept, ordered, 0.0), axis=0) / jnp.maximum(count - 2 * cut, 1).astype(rows.dtype)


def median(rows: jax.Array, present: jax.Array) -> jax.Array:
    """The median of each entry over the agents present, (d,)."""
    return middle(rows, present, jnp.maximum(jnp.sum(present) - 1, 0) // 2)


def trimmed_mean(rows: jax.Array, present: jax.Array, trim: Any) -> jax.Array:
    return middle(rows, present, assumed(trim, jnp.sum(present)))


def krum(rows: jax.Array, present: jax.Array, trim: Any) -> jax.Array:
    count = jnp.sum(present)
    neighbours = jnp.clip(count - assumed(trim, count) - 2, jnp.minimum(1, count - 1), count - 1)
    nearest = jnp.sort(distances_sq(rows, present), axis=1)[:, 1:]  # without itself
    score = jnp.sum(jnp.where(jnp.arange(len(rows) - 1) < neighbours, nearest, 0.0), axis=1)
    return jnp.where(count > 0, rows[jnp.argmin(jnp.where(present, score, jnp.inf))], 0.0)


def geometric_median(rows: jax.Array, present: jax.Array) -> jax.Array:
    """Weiszfeld's algorithm, smoothed, from the median of each entry."""

    def distances(z: jax.Array) -> jax.Array:
        return jnp.sqrt(jnp.sum(jnp.square(rows - z), axis=1))

    rows, start = jnp.where(present[:, None], rows, 0.0), median(rows, present)
    least = SMOOTHING * median(distances(start)[:, None], present)[0] + jnp.finfo(rows.dtype).tiny

    def step(_: int, z: jax.Array) -> jax.Array:
        pull = jnp.where(present, least / jnp.maximum(distances(z), least), 0.0)
        return pull @ rows / jnp.maximum(jnp.sum(pull), jnp.finfo(rows.dtype).tiny)

    return jax.lax.fori_loop(0, ITERATIONS, step, start)


def norm_clipping(rows: jax.Array, present: jax.Array) -> jax.Array:
    rows = jnp.where(present[:, None], rows, 0.0)
    norm = jnp.sqrt(jnp.sum(jnp.square(rows), axis=1))
    longest = median(norm[:, None], present)[0]
    shortened = rows * jnp.minimum(1.0, longest / jnp.where(norm > 0, norm, 1.0))[:, None]
    return middle(shortened, present, jnp.zeros((), int))


VOTES: dict[str, Callable[[jax.Array, jax.Array, Any], jax.Array]] = {
    "median": lambda rows, present, trim: median(rows, present),
    "trimmed-mean": trimmed_mean,
    "krum": krum,
    "geometric-median": lambda rows, present, trim: geometric_median(rows, present),
    "norm-clipping": lambda rows, present, trim: norm_clipping(rows, present),
}

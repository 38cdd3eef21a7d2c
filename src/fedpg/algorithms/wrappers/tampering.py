"""Attacks on messages: what attackers send instead of their own m_i. Rows are messages, (N, d).

zero          0
noise         m_i + U[-3, 3] (max m_i - min m_i) in each entry
sign-flip     -2.5 m_i
fedpg-attack  mean_j m_j + 1.5 max_jk |m_j - m_k| e, e a random direction: all attackers send this one message, and know all others
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedpg.algorithms.wrappers import votes

NOISE, FLIP, AWAY = 3.0, -2.5, 1.5
"""The factors of noise, sign-flip and fedpg-attack."""


def noise(keys: jax.Array, rows: jax.Array, present: jax.Array) -> jax.Array:
    """Each attacker rolls its own dice."""
    width = jnp.max(rows, axis=1) - jnp.min(rows, axis=1)
    drawn = jax.vmap(lambda key: jax.random.uniform(key, rows.shape[1:], rows.dtype, -NOISE, NOISE))(keys)
    return rows + width[:, None] * drawn


def collusion(keys: jax.Array, rows: jax.Array, present: jax.Array) -> jax.Array:
    """The dice of the first agent present are those of all."""
    direction = jax.random.normal(keys[jnp.argmax(present)], rows.shape[1:], rows.dtype)
    apart = votes.distances_sq(rows, present)
    furthest = jnp.sqrt(jnp.max(jnp.where(jnp.isfinite(apart), apart, 0.0)))
    centre = votes.middle(rows, present, jnp.zeros((), int))
    return jnp.broadcast_to(centre + AWAY * furthest * direction / jnp.linalg.norm(direction), rows.shape)


ON_MESSAGES: dict[str, Callable[[jax.Array, jax.Array, jax.Array], jax.Array]] = {
    "zero": lambda keys, rows, present: jnp.zeros_like(rows),
    "noise": noise,
    "sign-flip": lambda keys, rows, present: FLIP * rows,
    "fedpg-attack": collusion,
}
"""Each (keys (N,), messages as (N, d) rows, who is present (N,)) -> what attackers send instead, (N, d)."""

"""Small environments, written through the public contract as a user would."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpg.envs.base import Box, Discrete, Environment, Step


class Clock(NamedTuple):
    """When the episode ends, and whether that is a termination or a truncation."""

    end: jax.Array
    truncates: jax.Array


def _reset(key: jax.Array, clock: Clock) -> tuple[jax.Array, jax.Array]:
    return jnp.zeros(()), jnp.zeros(1)


def _step(key: jax.Array, state: jax.Array, action: jax.Array, clock: Clock) -> Step:
    now = state + 1.0
    over = now >= clock.end
    return Step(now, jnp.array([now]), now, over & ~clock.truncates, over & clock.truncates)


CLOCK = Environment("clock", Box((1,)), Discrete(2), _reset, _step)
"""Pays 1, 2, 3, ... and ends after `end` steps, whatever is done. With the default `draw`."""


def clock(end: int, truncates: bool = False) -> Clock:
    return Clock(jnp.asarray(float(end)), jnp.asarray(truncates))


def _noise(key: jax.Array, state: jax.Array, action: jax.Array, params: tuple) -> Step:
    never = jnp.zeros((), bool)
    return Step(state, jnp.zeros(1), jax.random.uniform(key), never, never)


NOISE = Environment("noise", Box((1,)), Discrete(2), lambda key, params: (jnp.zeros(()), jnp.zeros(1)), _noise)
"""Pays a random number each step, drawn from that step's key."""

POINT = Environment("point", Box((3,)), Box((2,)), lambda key, params: (jnp.zeros(3), jnp.zeros(3)), _noise)
"""Continuous observations and actions; only its spaces matter."""

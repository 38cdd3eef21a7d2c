"""CartPole with every physical constant and the start range an argument, equal to Gymnasium's step by step.

Derived constants (total mass, mass times length) are computed in the step, never stored: changing a pole's mass changes them.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpg.envs.base import Box, Discrete, Environment, Step
from fedpg.envs.heterogeneity import log_spread, shuffled_positions
from fedpg.errors import require

PerAgent = float | tuple[float, ...]

SPREAD = {"length": 2.0, "gravity": 1.5, "start_range": 2.0}
"""What `heterogeneity` spreads, and the factor either way at heterogeneity 1."""
WIDEST_START = 0.2
"""`heterogeneity` widens no start beyond this, just inside the angle (0.2095) at which the episode ends."""


@dataclasses.dataclass(frozen=True)
class CartPoleOptions:
    """Every constant: one number for all agents, or a list with one number per agent. A constant given as a list
    is not spread by `heterogeneity`; length, gravity and start_range given as one number are (see `SPREAD`)."""

    gravity: PerAgent = 9.8
    """Acceleration, m/s^2."""
    masscart: PerAgent = 1.0
    """Mass of the cart, kg."""
    masspole: PerAgent = 0.1
    """Mass of the pole, kg."""
    length: PerAgent = 0.5
    """Half the pole's length, m."""
    force_mag: PerAgent = 10.0
    """Push of one action, N."""
    tau: PerAgent = 0.02
    """Seconds per step."""
    x_threshold: PerAgent = 2.4
    """The episode ends when the cart is further out, m."""
    theta_threshold: PerAgent = 12 * 2 * math.pi / 360
    """The episode ends when the pole leans more, rad."""
    start_range: PerAgent = 0.05
    """Every start coordinate is uniform in [-start_range, start_range]."""


class CartPoleParams(NamedTuple):
    """One agent's constants; the names are those of `CartPoleOptions`."""

    gravity: jax.Array
    masscart: jax.Array
    masspole: jax.Array
    length: jax.Array
    force_mag: jax.Array
    tau: jax.Array
    x_threshold: jax.Array
    theta_threshold: jax.Array
    start_range: jax.Array


def _reset(key: jax.Array, params: CartPoleParams) -> tuple[jax.Array, jax.Array]:
    state = jax.random.uniform(key, (4,), minval=-1.0, maxval=1.0) * params.start_range
    return state, state


def _transition(noise: jax.Array, state: jax.Array, action: jax.Array, params: CartPoleParams) -> Step:
    del noise  # the dynamics are deterministic
    x, x_dot, theta, theta_dot = state
    force = jnp.where(action == 1, params.force_mag, -params.force_mag)
    cos, sin = jnp.cos(theta), jnp.sin(theta)
    total_mass = params.masspole + params.masscart
    polemass_length = params.masspole * params.length
    push = (force + polemass_length * theta_dot**2 * sin) / total_mass
    theta_acc = (params.gravity * sin - cos * push) / (params.length * (4.0 / 3.0 - params.masspole * cos**2 / total_mass))
    x_acc = push - polemass_length * theta_acc * cos / total_mass
    after = jnp.stack(
        [x + params.tau * x_dot, x_dot + params.tau * x_acc, theta + params.tau * theta_dot, theta_dot + params.tau * theta_acc]
    )
    terminated = (jnp.abs(after[0]) > params.x_threshold) | (jnp.abs(after[2]) > params.theta_threshold)
    return Step(after, after, jnp.ones_like(x), terminated, jnp.zeros((), bool))


ENVIRONMENT = Environment("cartpole", Box((4,)), Discrete(2), _reset, _transition, lambda key, n: jnp.zeros(n))


def cartpoles(key: jax.Array, agents: int, heterogeneity: float, options: CartPoleOptions) -> CartPoleParams:
    """The constants of N CartPoles, leading axis N.

    At heterogeneity h, pole lengths, gravities and start ranges lie evenly on a log scale within a factor 2^h, 1.5^h and
    2^h of nominal, each dealt to the agents in its own random order.
    """
    values = {}
    for field, place_key in zip(dataclasses.fields(options), jax.random.split(key, len(CartPoleParams._fields)), strict=True):
        value = getattr(options, field.name)
        given = value if isinstance(value, tuple) else (value,) * agents
        require(len(given) == agents, f"{field.name} lists {len(given)} values for {agents} agents: give one per agent")
        require(all(0.0 < v < math.inf for v in given), f"{field.name} must be positive and finite, not {value}")
        constant = jnp.asarray(given, float)
        if field.name in SPREAD and not isinstance(value, tuple):
            constant *= log_spread(heterogeneity, SPREAD[field.name], shuffled_positions(place_key, agents))
        values[field.name] = constant
    if not isinstance(options.start_range, tuple):
        values["start_range"] = jnp.minimum(values["start_range"], WIDEST_START)
    return CartPoleParams(**values)

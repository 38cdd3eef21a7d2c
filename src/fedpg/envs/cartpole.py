"""CartPole with its physical constants and start range as arguments; steps equal Gymnasium's.

Derived constants (total mass, mass times length) are computed in the step, never stored: they follow the pole's mass.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp

from fedpg.envs.base import Box, Discrete, Elementwise, Environment
from fedpg.envs.heterogeneity import PerAgent, listed, log_spread, shuffled_positions
from fedpg.errors import require

SPREAD = {"length": 2.0, "gravity": 1.5, "start_range": 2.0}
"""The constants that `heterogeneity` spreads, and by which factor either way at heterogeneity 1."""
WIDEST_START = 0.2
"""Upper bound of a spread start range, just inside the angle (0.2095) at which the episode ends."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CartPole:
    """The constants of a CartPole: as options one number for all agents or one per agent, in an environment an array.

    Constants given per agent are not spread by `heterogeneity`; length, gravity and start_range otherwise are (see `SPREAD`).
    """

    gravity: PerAgent = 9.8  # m/s^2
    masscart: PerAgent = 1.0  # kg
    masspole: PerAgent = 0.1  # kg
    length: PerAgent = 0.5  # half the length of the pole, m
    force_mag: PerAgent = 10.0  # push of one action, N
    tau: PerAgent = 0.02  # seconds per step
    x_threshold: PerAgent = 2.4  # the episode ends when the cart is further out, m
    theta_threshold: PerAgent = 12 * 2 * math.pi / 360  # the episode ends when the pole leans more, rad
    start_range: PerAgent = 0.05  # every start coordinate is uniform in [-start_range, start_range]


def _reset(key: jax.Array, params: CartPole) -> tuple[jax.Array, jax.Array]:
    state = jax.random.uniform(key, (4,), minval=-1.0, maxval=1.0) * params.start_range
    return state, state


def _advance(state: tuple, action: jax.Array, params: CartPole) -> tuple[tuple, jax.Array, jax.Array]:
    x, x_dot, theta, theta_dot = state
    force = jnp.where(action == 1, params.force_mag, -params.force_mag)
    cos, sin = jnp.cos(theta), jnp.sin(theta)
    total_mass = params.masspole + params.masscart
    polemass_length = params.masspole * params.length
    push = (force + polemass_length * theta_dot**2 * sin) / total_mass
    theta_acc = (params.gravity * sin - cos * push) / (params.length * (4.0 / 3.0 - params.masspole * cos**2 / total_mass))
    x_acc = push - polemass_length * theta_acc * cos / total_mass
    x, x_dot = x + params.tau * x_dot, x_dot + params.tau * x_acc
    theta, theta_dot = theta + params.tau * theta_dot, theta_dot + params.tau * theta_acc
    terminated = (jnp.abs(x) > params.x_threshold) | (jnp.abs(theta) > params.theta_threshold)
    return (x, x_dot, theta, theta_dot), jnp.ones_like(x), terminated


ENVIRONMENT = Environment("cartpole", Box((4,)), Discrete(2), _reset, Elementwise(_advance), lambda key, n: jnp.zeros(n))


def cartpoles(key: jax.Array, agents: int, heterogeneity: float, options: CartPole) -> CartPole:
    """The constants of N CartPoles, leading axis N.

    At heterogeneity h, pole lengths, gravities and start ranges lie evenly on a log scale within a factor 2^h, 1.5^h and
    2^h of nominal, each assigned to the agents in its own random order.
    """
    values = {}
    names = [field.name for field in dataclasses.fields(CartPole)]
    for name, order_key in zip(names, jax.random.split(key, len(names)), strict=True):
        given = getattr(options, name)
        constants = listed(name, given, agents)
        require(all(0.0 < v < math.inf for v in constants), f"{name} must be positive and finite, not {given}")
        values[name] = jnp.asarray(constants, float)
        if name in SPREAD and not isinstance(given, tuple):
            values[name] *= log_spread(heterogeneity, SPREAD[name], shuffled_positions(order_key, agents))
    if not isinstance(options.start_range, tuple):
        values["start_range"] = jnp.minimum(values["start_range"], WIDEST_START)
    return CartPole(**values)

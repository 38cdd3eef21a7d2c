"""How the agents of a MuJoCo task differ: constants that a user sets, and what `heterogeneity` does to them."""

import dataclasses
import math

import jax
import jax.numpy as jnp

from fedpg.envs.heterogeneity import PerAgent, listed, log_spread, positions, shuffled_positions
from fedpg.envs.mujoco.tasks import Task
from fedpg.errors import choose, require

SPREAD = {
    "start_range": 2.0,
    "gravity": 1.25,
    "mass": 1.5,
    "friction": 1.5,
    "limb_length": 1.15,
    "gain": 1.25,
    "action_offset": 0.2,
    "target_speed": 1.0,
    "direction": 1.0,
}
"""How far heterogeneity h spreads each constant over agents at positions z, evenly from -1 to 1. Factors and start_range are
multiplied by SPREAD^(h z); action_offset gets h z SPREAD added; target_speed becomes speed (1 + h z SPREAD); direction becomes
1 - h (1 - z) SPREAD, from -1 to 1 at h = 1."""
FACTORS = ("start_range", "gravity", "mass", "friction", "limb_length", "gain")
"""Constants that must be positive."""
PRESETS = {
    "start": ("start_range",),
    "physics": ("gravity", "mass", "friction"),
    "body": ("limb_length", "mass", "gain"),
    "offset": ("action_offset",),
    "speed": ("target_speed",),
    "conflict": ("direction",),
    "all": (*FACTORS, "action_offset"),
}
"""Groups of constants that `vary` may name."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Knobs:
    """The constants of an agent: as options one number for all agents or one per agent, after `knobs` an array."""

    start_range: PerAgent | None = None
    """Half-width of the noise on the start state (Gymnasium: reset_noise_scale). None: the task's own."""
    gravity: PerAgent = 1.0
    """Factor on gravity. No effect on swimmer, which lies flat."""
    mass: PerAgent = 1.0
    """Factor on the mass of every body; inertias follow."""
    friction: PerAgent = 1.0
    """Factor on sliding friction with the ground. No effect on swimmer, which touches nothing."""
    limb_length: PerAgent = 1.0
    """Factor on the length of the limbs (all bodies but the torso) at equal density; the torso starts as much higher as the
    legs are longer, and its height is counted from there."""
    gain: PerAgent = 1.0
    """Factor on the strength of the motors."""
    action_offset: PerAgent = 0.0
    """Added to every action before the environment gets it."""
    target_speed: PerAgent = math.inf
    """The forward reward becomes -|speed - target_speed|, m/s. inf: as fast as possible, the task's own reward."""
    direction: PerAgent = 1.0
    """Factor on the forward speed in the reward; -1: run backwards."""


@dataclasses.dataclass(frozen=True)
class MujocoOptions(Knobs):
    """Options of a MuJoCo task. Constants given per agent are not spread by `heterogeneity`; `vary` names those that are."""

    vary: str = "start"
    """Constants that `heterogeneity` spreads: start (the paper), physics, body, offset, speed, conflict, all, or names of
    constants; several joined by +, such as gravity+mass."""


NAMES = tuple(field.name for field in dataclasses.fields(Knobs))


def varied(vary: str) -> set[str]:
    """The constants that `vary` names.

    >>> sorted(varied("speed+mass"))
    ['mass', 'target_speed']
    """
    names = [choose("vary", part.strip(), (*PRESETS, *NAMES)) for part in vary.split("+")]
    return {constant for name in names for constant in PRESETS.get(name, (name,))}


def _checked(name: str, value: PerAgent, agents: int) -> jax.Array:
    """The given values of a constant, (N,)."""
    values = listed(name, value, agents)
    if name in FACTORS:
        require(all(0.0 < v < math.inf for v in values), f"{name} must be positive and finite, not {value}")
    elif name == "target_speed":
        require(all(-math.inf < v for v in values), f"{name} must be a number of m/s, or inf for none, not {value}")
    else:
        require(all(map(math.isfinite, values)), f"{name} must be finite, not {value}")
    return jnp.asarray(values, float)


def _spread(name: str, value: jax.Array, heterogeneity: float, position: jax.Array, task: Task) -> jax.Array:
    """`value` spread over the agents at `position`; both (N,). See `SPREAD`."""
    if name == "action_offset":
        return value + heterogeneity * position * SPREAD[name]
    if name == "target_speed":
        return jnp.where(jnp.isinf(value), task.speed, value) * (1.0 + heterogeneity * position * SPREAD[name])
    if name == "direction":  # counted from the last position, so that a single agent is the nominal one
        return value * (1.0 - heterogeneity * (positions(position.shape[0])[-1] - position) * SPREAD[name])
    spread = value * log_spread(heterogeneity, SPREAD[name], position)
    # A start range given above the widest stays as given.
    return jnp.minimum(spread, jnp.maximum(value, task.widest_start)) if name == "start_range" else spread


def knobs(key: jax.Array, agents: int, heterogeneity: float, options: MujocoOptions, task: Task) -> Knobs:
    """The constants of N agents, leading axis N; each varied constant is assigned to the agents in its own random order."""
    chosen = varied(options.vary)
    values = {}
    for name, order_key in zip(NAMES, jax.random.split(key, len(NAMES)), strict=True):
        given = getattr(options, name)
        given = task.start_range if given is None else given
        values[name] = _checked(name, given, agents)
        if name in chosen and not isinstance(given, tuple):
            values[name] = _spread(name, values[name], heterogeneity, shuffled_positions(order_key, agents), task)
    return Knobs(**values)

"""How the agents of a MuJoCo task differ: the constants a user can set, and what `heterogeneity` does to them."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpg.envs.heterogeneity import log_spread, positions, shuffled_positions
from fedpg.envs.mujoco.tasks import Task
from fedpg.errors import choose, require

PerAgent = float | tuple[float, ...]

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
"""How far heterogeneity h spreads each knob, places z evenly from -1 to 1. The physical ones and start_range by a factor
SPREAD^(h z); action_offset by adding h z SPREAD; target_speed as speed (1 + h z SPREAD); direction as 1 - h (1 - z) SPREAD,
which runs from -1 to 1 at h = 1."""
PHYSICS, BODY = ("gravity", "mass", "friction"), ("limb_length", "mass", "gain")
PRESETS = {
    "start": ("start_range",),
    "physics": PHYSICS,
    "body": BODY,
    "offset": ("action_offset",),
    "speed": ("target_speed",),
    "conflict": ("direction",),
    "all": ("gravity", "mass", "friction", "limb_length", "gain", "start_range", "action_offset"),
}
"""What `vary` may name besides single knobs."""
FACTORS = ("start_range", "gravity", "mass", "friction", "limb_length", "gain")


@dataclasses.dataclass(frozen=True)
class MujocoOptions:
    """Every knob: one number for all agents, or a list with one number per agent. A knob given as a list is not
    spread by `heterogeneity`; `vary` says which of the others are."""

    start_range: PerAgent | None = None
    """Half-width of the start state's noise (Gymnasium: reset_noise_scale). Left out: the task's own."""
    gravity: PerAgent = 1.0
    """Factor on gravity. Without effect on swimmer, which lies flat."""
    mass: PerAgent = 1.0
    """Factor on the mass of every body; inertias follow."""
    friction: PerAgent = 1.0
    """Factor on sliding friction with the ground. Without effect on swimmer, which touches nothing."""
    limb_length: PerAgent = 1.0
    """Factor on the length of the limbs (all bodies but the torso); their mass follows at equal density, and the torso
    starts as much higher as the legs are longer. Height is counted from there."""
    gain: PerAgent = 1.0
    """Factor on the motors' strength."""
    action_offset: PerAgent = 0.0
    """Added to every action before the environment sees it."""
    target_speed: PerAgent = math.inf
    """The forward reward becomes -|speed - target_speed|, m/s. inf: as fast as possible, the task's own reward."""
    direction: PerAgent = 1.0
    """What the forward speed is multiplied by in the reward; -1: run backwards."""
    vary: str = "start"
    """What `heterogeneity` spreads: start (the paper), physics, body, offset, speed, conflict, all, or names of knobs;
    several joined by +, such as gravity+mass."""


class Knobs(NamedTuple):
    """One agent's constants; the names are those of `MujocoOptions`."""

    start_range: jax.Array
    gravity: jax.Array
    mass: jax.Array
    friction: jax.Array
    limb_length: jax.Array
    gain: jax.Array
    action_offset: jax.Array
    target_speed: jax.Array
    direction: jax.Array


def varied(vary: str) -> set[str]:
    """The knobs that `vary` names.

    >>> sorted(varied("speed+mass"))
    ['mass', 'target_speed']
    """
    names = [choose("vary", part.strip(), (*PRESETS, *Knobs._fields)) for part in vary.split("+")]
    return {knob for name in names for knob in PRESETS.get(name, (name,))}


def _given(name: str, value: PerAgent, agents: int) -> jax.Array:
    """The values a user gave, checked, (N,)."""
    values = value if isinstance(value, tuple) else (value,) * agents
    require(len(values) == agents, f"{name} lists {len(values)} values for {agents} agents: give one per agent")
    if name in FACTORS:
        require(all(0.0 < v < math.inf for v in values), f"{name} must be positive and finite, not {value}")
    elif name == "target_speed":
        require(all(-math.inf < v for v in values), f"{name} must be a number of m/s, or inf for none, not {value}")
    else:
        require(all(map(math.isfinite, values)), f"{name} must be finite, not {value}")
    return jnp.asarray(values, float)


def _spread(name: str, value: jax.Array, heterogeneity: float, place: jax.Array, task: Task) -> jax.Array:
    """`value` spread over the agents, who stand at `place`; both (N,). See `SPREAD`."""
    if name == "action_offset":
        return value + heterogeneity * place * SPREAD[name]
    if name == "target_speed":
        return jnp.where(jnp.isinf(value), task.speed, value) * (1.0 + heterogeneity * place * SPREAD[name])
    if name == "direction":  # counted from the last place, so that one agent alone is the nominal one
        return value * (1.0 - heterogeneity * (positions(place.shape[0])[-1] - place) * SPREAD[name])
    spread = value * log_spread(heterogeneity, SPREAD[name], place)
    # A start given wider than the widest stays as given.
    return jnp.minimum(spread, jnp.maximum(value, task.widest_start)) if name == "start_range" else spread


def knobs(key: jax.Array, agents: int, heterogeneity: float, options: MujocoOptions, task: Task) -> Knobs:
    """The constants of N agents, leading axis N; each varied knob is dealt to the agents in its own random order."""
    chosen = varied(options.vary)
    values = {}
    for name, place_key in zip(Knobs._fields, jax.random.split(key, len(Knobs._fields)), strict=True):
        given = getattr(options, name)
        given = task.start_range if given is None else given
        values[name] = _given(name, given, agents)
        if name in chosen and not isinstance(given, tuple):
            values[name] = _spread(name, values[name], heterogeneity, shuffled_positions(place_key, agents), task)
    return Knobs(**values)

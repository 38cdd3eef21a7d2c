"""Spaces without an environment: what the server of a federation needs to know of environments that only the agents have.

Nothing ever happens in it: every observation is zero, every reward is zero, and no episode ends. It gives a policy its shapes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from fedpg.envs.base import Box, Discrete, Environment, Space, Step
from fedpg.errors import require


@dataclasses.dataclass(frozen=True)
class SpacesOptions:
    """The sizes of the two spaces: of each exactly one kind."""

    observation: int = 0
    """How many numbers an observation has."""
    states: int = 0
    """How many states there are, where an observation is the name of one."""
    action: int = 0
    """How many numbers an action has."""
    choices: int = 0
    """How many actions there are to choose from."""


def _space(numbers: int, names: int, what: str) -> Space:
    require((numbers > 0) != (names > 0), f"spaces needs one of --env-option {what}: the agents' environments have the one or the other")
    return Box((numbers,)) if numbers else Discrete(names)


def environment(options: SpacesOptions) -> Environment:
    """An environment with these spaces."""
    observations = _space(options.observation, options.states, "observation=NUMBERS or states=NUMBER")
    actions = _space(options.action, options.choices, "action=NUMBERS or choices=NUMBER")

    def nothing() -> jax.Array:
        return jnp.zeros((), int) if isinstance(observations, Discrete) else jnp.zeros(observations.shape)

    def reset(key: jax.Array, params: Any) -> tuple[tuple[()], jax.Array]:
        return (), nothing()

    def transition(noise: Any, state: Any, action: jax.Array, params: Any) -> Step:
        never = jnp.zeros((), bool)
        return Step((), nothing(), jnp.zeros(()), never, never)

    return Environment("spaces", observations, actions, reset, transition)


def members(key: jax.Array, agents: int) -> jax.Array:
    """The agents' constants: there is nothing to differ in."""
    return jnp.zeros(agents)

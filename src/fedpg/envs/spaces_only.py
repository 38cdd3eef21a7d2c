"""An environment that consists of its spaces only, for a server whose agents have the real environments.

It gives the policy its shapes. Observations and rewards are zero, and no episode ends.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from fedpg.envs.base import Box, Discrete, Environment, Space, Step, zero
from fedpg.envs.heterogeneity import Count
from fedpg.errors import require


@dataclasses.dataclass(frozen=True)
class SpacesOptions:
    """The sizes of both spaces: observation or states, and action or choices."""

    observation: Count = 0  # numbers of an observation
    states: Count = 0  # number of states, if an observation is the index of one
    action: Count = 0  # numbers of an action
    choices: Count = 0  # number of actions, if an action is the index of one


def _space(numbers: int, indices: int, what: str) -> Space:
    require((numbers > 0) != (indices > 0), f"spaces needs one of --env-option {what}, as the agents' environments have it")
    return Box((numbers,)) if numbers else Discrete(indices)


def environment(options: SpacesOptions) -> Environment:
    """An environment with these spaces."""
    observations = _space(options.observation, options.states, "observation=NUMBERS or states=NUMBER")
    actions = _space(options.action, options.choices, "action=NUMBERS or choices=NUMBER")

    def transition(noise: Any, state: Any, action: jax.Array, params: Any) -> Step:
        never = jnp.zeros((), bool)
        return Step((), zero(observations), jnp.zeros(()), never, never)

    return Environment("spaces", observations, actions, lambda key, params: ((), zero(observations)), transition)


def members(key: jax.Array, agents: int, heterogeneity: float, options: SpacesOptions) -> jax.Array:
    """The constants of N agents, which do not differ."""
    return jnp.zeros(agents)

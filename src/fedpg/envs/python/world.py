"""From one environment per agent to a world: keyword arguments that differ between agents, spaces that must not."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.envs.base import World
from fedpg.envs.host import HostEnvironment, Member
from fedpg.envs.python.host import Maker, PythonHost
from fedpg.envs.python.spaces import View, stack, view
from fedpg.errors import require


def per_agent(options: dict[str, Any], agents: int) -> list[dict[str, Any]]:
    """Keyword arguments of N agents: a list gives one value to each, anything else goes to all, and so does a list in a list.

    >>> per_agent({"insulation": [1.5, 4.0], "target": 20.0, "size": [[3, 4, 5]]}, 2)
    [{'insulation': 1.5, 'target': 20.0, 'size': [3, 4, 5]}, {'insulation': 4.0, 'target': 20.0, 'size': [3, 4, 5]}]

    Raises:
        UserError: if a list has another length.
    """
    columns = {}
    for name, value in options.items():
        if not isinstance(value, list):
            value = [value] * agents
        elif len(value) == 1 and isinstance(value[0], list):
            value = value * agents
        advice = "give one per agent, or [[...]] for the same list to all"
        require(len(value) == agents, f"{name} lists {len(value)} values for {agents} agents: {advice}")
        columns[name] = value
    return [{name: column[i] for name, column in columns.items()} for i in range(agents)]


def check_interface(name: str, environment: Any) -> None:
    """Refuses what cannot be an environment with Gymnasium's interface."""
    for attribute in ("reset", "step", "observation_space", "action_space"):
        require(hasattr(environment, attribute), f"{name}: {type(environment).__name__} has no {attribute}, which an environment needs")
    require(not hasattr(environment, "num_envs"), f"{name}: {type(environment).__name__} is a vector environment: give a single one")
    try:
        parameters = inspect.signature(environment.reset).parameters.values()
    except (TypeError, ValueError):  # Compiled code need not tell.
        return
    seeded = any(p.name == "seed" or p.kind is p.VAR_KEYWORD for p in parameters)
    require(seeded, f"{name}: reset of {type(environment).__name__} must take seed=..., so that runs can be repeated")


def _shared(name: str, kind: str, spaces: list[Any]) -> View:
    """How the policy sees a space that all agents have."""
    views = [view(space, kind, name) for space in spaces]
    for i, mine in enumerate(views):
        same = mine.space == views[0].space and (kind == "observation" or mine.dtype == views[0].dtype)
        text = f"agent {i} has {kind}_space {spaces[i]}, agent 0 has {spaces[0]}: one policy cannot serve both"
        require(same, f"{name}: {' '.join(text.split())}")
    return stack(views)


def python_world(name: str, makers: list[Maker], made: list[Any]) -> World:
    """The world of agents whose environments have Gymnasium's interface.

    Args:
        name: what `--env` calls it.
        makers: how each agent's environments are made, N of them.
        made: each agent's first environment.

    Raises:
        UserError: if one is no such environment, or if their spaces differ.
    """
    for environment in made:
        check_interface(name, environment)
    observations = _shared(name, "observation", [environment.observation_space for environment in made])
    actions = _shared(name, "action", [environment.action_space for environment in made])
    host = PythonHost(makers, observations, actions, made)

    def start(key: jax.Array, _: Any) -> jax.Array:
        return jax.random.bits(key, (1,), jnp.uint32)

    def prepare(member: Member) -> Member:
        seeds, agents = np.shape(member.index)
        host.make_ready(seeds)
        return member._replace(index=np.arange(seeds * agents, dtype=np.int32).reshape(seeds, agents))

    return World(
        HostEnvironment(name, observations.space, actions.space, start, host), lambda key: Member(jnp.arange(len(makers))), prepare
    )

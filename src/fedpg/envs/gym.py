"""Environments that Gymnasium knows by name: `--env gym:LunarLander-v3`, `--env gym:my_package:MyTask-v0`."""

import functools
import textwrap
from typing import Any

import numpy as np

from fedpg.envs.base import Federation
from fedpg.envs.outcomes import Outcomes
from fedpg.envs.own import federation_of, per_agent
from fedpg.errors import UserError, require

PREFIX = "gym:"
ATTRIBUTE = "unwrapped."
"""Options that start with it are attributes of the environment itself: `--env-option unwrapped.LINK_LENGTH_1=0.8`."""


def federation(name: str, agents: int, options: dict[str, Any]) -> Federation:
    """N agents in `gymnasium.make(ID, **options)`, each with its own values of the options that are lists.

    Raises:
        UserError: if Gymnasium or what the environment needs is not installed, or it cannot be made with these options.
    """
    _gymnasium(name)
    return federation_of(name, [functools.partial(make, name, kwargs) for kwargs in per_agent(options, agents)])


def time_limit(name: str) -> int | None:
    """The number of steps after which Gymnasium truncates an episode of `name`; None if there is no limit or no such name."""
    gymnasium = _gymnasium(name)
    try:
        return gymnasium.spec(name.removeprefix(PREFIX)).max_episode_steps
    except Exception:  # an id that does not exist is reported by `federation`
        return None


def _gymnasium(name: str) -> Any:
    try:
        import gymnasium
    except ImportError:
        raise UserError(f"{name} needs Gymnasium: pip install 'fedpg[gym]'") from None
    return gymnasium


def outcomes(name: str, **options: Any) -> Outcomes:
    """The table `P` of one of Gymnasium's finite tasks, as NumPy arrays."""
    task = make(name, options).unwrapped
    rows = [[task.P[s][a] for a in range(task.action_space.n)] for s in range(task.observation_space.n)]
    most = max(len(listed) for row in rows for listed in row)
    padded = [[[*listed, *[(0.0, 0, 0.0, False)] * (most - len(listed))] for listed in row] for row in rows]
    probability, after, reward, terminated = (np.array([[[one[i] for one in cell] for cell in row] for row in padded]) for i in range(4))
    return Outcomes(after.astype(np.int32), probability, reward.astype(float), terminated.astype(bool), task.initial_state_distrib)


def random_lake(size: int, seed: int) -> list[str]:
    """A map of FrozenLake, as Gymnasium draws it from a seed."""
    _gymnasium("FrozenLake")
    from gymnasium.envs.toy_text.frozen_lake import generate_random_map

    return generate_random_map(size, seed=seed)


def make(name: str, kwargs: dict[str, Any]) -> Any:
    """One environment with these keyword arguments; `unwrapped.NAME` sets an attribute of the environment itself."""
    gymnasium = _gymnasium(name)
    attributes = {key.removeprefix(ATTRIBUTE): value for key, value in kwargs.items() if key.startswith(ATTRIBUTE)}
    rest = {key: value for key, value in kwargs.items() if not key.startswith(ATTRIBUTE)}
    try:
        # `PythonSession` checks what Gymnasium's checker warns about; without the checker a step is faster.
        made = gymnasium.make(name.removeprefix(PREFIX), **{"disable_env_checker": True} | rest)
    except Exception as error:
        raise UserError(f"{name}: {textwrap.shorten(str(error), 500, placeholder=' ...')}") from error
    for attribute, value in attributes.items():
        require(hasattr(made.unwrapped, attribute), f"{name} has no attribute {attribute}: give one of {type(made.unwrapped).__name__}'s")
        setattr(made.unwrapped, attribute, value)
    return made

"""Environments that Gymnasium knows by name: `--env gym:LunarLander-v3`, `--env gym:my_package:MyTask-v0`."""

import functools
import textwrap
from typing import Any

from fedpg.envs.base import Federation
from fedpg.envs.own import federation_of, per_agent
from fedpg.errors import UserError

PREFIX = "gym:"


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


def make(name: str, kwargs: dict[str, Any]) -> Any:
    """One environment with these keyword arguments."""
    gymnasium = _gymnasium(name)
    try:
        # `PythonSession` checks what Gymnasium's checker warns about; without the checker a step is faster.
        return gymnasium.make(name.removeprefix(PREFIX), **{"disable_env_checker": True} | kwargs)
    except Exception as error:
        raise UserError(f"{name}: {textwrap.shorten(str(error), 500, placeholder=' ...')}") from error

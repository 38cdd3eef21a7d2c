"""Environments that Gymnasium knows by name: `--env gym:LunarLander-v3`, `--env gym:my_package:MyTask-v0`."""

from __future__ import annotations

import functools
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fedpg.envs.base import Federation
from fedpg.envs.own import per_agent, python_federation
from fedpg.envs.python_host import Maker, close_quietly
from fedpg.envs.spaces import view
from fedpg.errors import UserError

PREFIX = "gym:"


def federation(name: str, agents: int, options: dict[str, Any]) -> Federation:
    """N agents in `gymnasium.make(ID, **options)`, each with its own values of the options that are lists.

    Raises:
        UserError: if Gymnasium or what the environment needs is not installed, or it cannot be made with these options.
    """
    gymnasium = _gymnasium(name)
    makers, made = [], []
    for kwargs in per_agent(options, agents):
        single = functools.partial(_make, gymnasium, name, kwargs)
        made.append(single())
        makers.append(Maker(single, _vector_maker(gymnasium, name, kwargs, made[-1])))
    return python_federation(name, makers, made)


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


def _make(gymnasium: Any, name: str, kwargs: dict[str, Any]) -> Any:
    try:
        # `PythonSession` checks what Gymnasium's checker warns about; without the checker a step is faster.
        return gymnasium.make(name.removeprefix(PREFIX), **{"disable_env_checker": True} | kwargs)
    except Exception as error:
        raise UserError(f"{name}: {textwrap.shorten(str(error), 500, placeholder=' ...')}") from error


def _vector_maker(gymnasium: Any, name: str, kwargs: dict[str, Any], single: Any) -> Callable[[int], Any] | None:
    """The function that makes the native vector environment of an id; None if none matches the single environment."""
    if single.spec is None or single.spec.vector_entry_point is None:
        return None

    def make(lanes: int) -> Any:
        return gymnasium.make_vec(name.removeprefix(PREFIX), num_envs=lanes, vectorization_mode="vector_entry_point", **kwargs)

    try:
        with warnings.catch_warnings():  # about an undeclared mode: the single environments are used then
            warnings.simplefilter("ignore")
            trial = make(1)
        mode = getattr(trial.metadata.get("autoreset_mode"), "name", None)
        same = all(
            view(getattr(trial, f"single_{kind}_space"), kind, name).space == view(getattr(single, f"{kind}_space"), kind, name).space
            for kind in ("observation", "action")
        )
        close_quietly(trial)
    except Exception:  # it may not take these options, or need what is not installed
        return None
    if not same or mode not in ("NEXT_STEP", "SAME_STEP"):
        return None
    return (lambda lanes: LastObservation(make(lanes))) if mode == "SAME_STEP" else make


class LastObservation:
    """A vector environment that resets a lane in the step that ends it, with the lane's last observation restored."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self.reset, self.close = environment.reset, environment.close

    def step(self, action: np.ndarray) -> tuple:
        """One step of all lanes."""
        observation, reward, terminated, truncated, info = self._environment.step(action)
        ended = np.flatnonzero(np.logical_or(terminated, truncated))
        if len(ended):
            observation = np.array(observation)
            for lane in ended:
                observation[lane] = info["final_obs"][lane]
        return observation, reward, terminated, truncated, info

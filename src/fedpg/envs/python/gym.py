"""`--env gym:ID`: any environment that Gymnasium knows by name, `gym:LunarLander-v3`, `gym:my_package:MyTask-v0`."""

from __future__ import annotations

import textwrap
import warnings
from typing import Any

import numpy as np

from fedpg.envs.base import World
from fedpg.envs.python.host import Maker, shut
from fedpg.envs.python.spaces import view
from fedpg.envs.python.world import per_agent, python_world
from fedpg.errors import UserError

PREFIX = "gym:"


def gym_world(name: str, agents: int, options: dict[str, Any]) -> World:
    """N agents in `gymnasium.make(ID, **options)`, each with its own values of the options that are lists.

    Raises:
        UserError: if Gymnasium or what the environment needs is not installed, or it cannot be made with these options.
    """
    gymnasium = _gymnasium(name)
    kwargs = per_agent(options, agents)
    singles = [lambda kwargs=kwargs: _make(gymnasium, name, kwargs) for kwargs in kwargs]
    made = [single() for single in singles]
    vectors = [_vector_maker(gymnasium, name, kwargs[i], made[i]) for i in range(agents)]
    return python_world(name, [Maker(*pair) for pair in zip(singles, vectors, strict=True)], made)


def time_limit(name: str) -> int | None:
    """After how many steps Gymnasium stops an episode of `name`; None if it does not, or does not know the name."""
    gymnasium = _gymnasium(name)
    try:
        return gymnasium.spec(name.removeprefix(PREFIX)).max_episode_steps
    except Exception:  # An id that cannot be made is told of when it is made.
        return None


def _gymnasium(name: str) -> Any:
    try:
        import gymnasium
    except ImportError:
        raise UserError(f"{name} needs Gymnasium: pip install 'fedpg[gym]'") from None
    return gymnasium


def _make(gymnasium: Any, name: str, kwargs: dict[str, Any]) -> Any:
    try:
        # What Gymnasium's checker warns about, a session checks and tells; without the checker a step is faster.
        return gymnasium.make(name.removeprefix(PREFIX), **{"disable_env_checker": True} | kwargs)
    except Exception as error:
        raise UserError(f"{name}: {textwrap.shorten(str(error), 500, placeholder=' ...')}") from error


def _vector_maker(gymnasium: Any, name: str, kwargs: dict[str, Any], single: Any) -> Any:
    """How to make the native vector environment of an id; None if it has none that is equal to the single one."""
    spec = single.spec
    if spec is None or spec.vector_entry_point is None:
        return None

    def make(lanes: int) -> Any:
        return gymnasium.make_vec(name.removeprefix(PREFIX), num_envs=lanes, vectorization_mode="vector_entry_point", **kwargs)

    try:
        with warnings.catch_warnings():  # About a mode that is not declared; the single environments are used then.
            warnings.simplefilter("ignore")
            trial = make(1)
        mode = getattr(trial.metadata.get("autoreset_mode"), "name", None)
        same = all(
            view(getattr(trial, f"single_{kind}_space"), kind, name).space == view(getattr(single, f"{kind}_space"), kind, name).space
            for kind in ("observation", "action")
        )
        shut(trial)
    except Exception:  # It may not take these options, or need what is not installed; the single environment was made.
        return None
    if not same or mode not in ("NEXT_STEP", "SAME_STEP"):
        return None
    return (lambda lanes: LastObservation(make(lanes))) if mode == "SAME_STEP" else make


class LastObservation:
    """A vector environment that resets a lane in the step that ends it; this one returns the lane's last observation instead."""

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

"""Lanes under way in environments with Gymnasium's interface, and what counts as their failure."""

from __future__ import annotations

import textwrap
from typing import Any, Protocol

import numpy as np

from fedpg.envs.base import Discrete
from fedpg.envs.host import Event, Stepped
from fedpg.envs.python.spaces import View, shape_of
from fedpg.errors import UserError

RESET = ("observation", "info")
STEP = ("observation", "reward", "terminated", "truncated", "info")


class Misbehaved(Exception):
    """What an environment did that its interface does not allow, in one line."""


def one_line(error: BaseException) -> str:
    """An exception for people: its type and its message; only the message if it is meant for people."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}".removesuffix(": ")
    return textwrap.shorten(text, 300, placeholder=" ...")


class Part:
    """An environment with the lanes it steps: one lane (a number), or all of its agent's (an array) if it is a vector one."""

    def __init__(self, index: int, lanes: Any) -> None:
        self.index, self.lanes = index, lanes
        self.lead: tuple[int, ...] = np.shape(lanes)
        self.environment: Any = None
        self.broken = False


class Owner(Protocol):
    """What a session asks of its host."""

    events: list[Event]

    def take(self, part: Part) -> Any: ...
    def give_back(self, part: Part) -> None: ...


class PythonSession:
    """L lanes under way. Lanes that have ended are not stepped, except beside others in a vector environment.

    Args:
        host: where environments come from and go back to.
        parts: all lanes, divided among environments.
        start: the seed of each lane, (L, 1).
        observations, actions: how the policy sees them, a row per lane.
        dtypes: of observations and rewards in the jitted program.
    """

    def __init__(
        self, host: Owner, parts: list[Part], start: np.ndarray, observations: View, actions: View, dtypes: tuple[np.dtype, np.dtype]
    ) -> None:
        self._host, self._parts, self._dtypes = host, parts, dtypes
        self._observations, self._actions = observations, actions
        self._told: set[int] = set()
        self._raw = np.zeros((len(start), *shape_of(observations.space)))
        self._terminated, self._truncated, self._failed = (np.zeros(len(start), bool) for _ in range(3))
        self.observation = self._raw.astype(dtypes[0])
        for part in parts:
            try:
                part.environment = host.take(part)
                # A vector environment draws all its lanes from one seed, that of the first.
                seed = int(start[part.lanes].flat[0])
                observation, _ = _unpack("reset", part.environment.reset(seed=seed), RESET)
                self._put(part, observation)
            except Exception as error:
                self._fail(part, part.lanes, _reason("reset", error))
        self._look(~self._failed, np.zeros(len(start)))

    def step(self, action: np.ndarray) -> Stepped:
        """One step of every lane; `action` as the policy gives it, L rows."""
        lanes = len(self._raw)
        ended = self._terminated | self._truncated
        reward, terminated, truncated = np.zeros(lanes), np.zeros(lanes, bool), np.zeros(lanes, bool)
        action = np.asarray(action, float).reshape(lanes, *shape_of(self._actions.space))
        finite = np.isfinite(action)
        # Such an action comes from params that are not finite: the agent failed earlier, which has been told already.
        self._failed |= ~finite.reshape(lanes, -1).all(1)
        going = ~(ended | self._failed)
        if going.any():
            action = self._actions.to_environment(np.where(finite, action, 0.0))
            for part in self._parts:
                if not going[part.lanes].any():
                    continue
                try:
                    result = _unpack("step", part.environment.step(action[part.lanes]), STEP)
                    self._put(part, result[0])
                    for name, place, value in zip(STEP[1:4], (reward, terminated, truncated), result[1:4], strict=True):
                        _set(name, place, part.lanes, value)
                except Exception as error:
                    self._fail(part, part.lanes, _reason("step", error))
            with np.errstate(over="ignore"):
                reward = reward.astype(self._dtypes[1])
            self._look(going, reward)
        failed = self._failed & ~ended
        reward = np.where(ended, 0.0, np.where(failed, np.nan, reward)).astype(self._dtypes[1])
        self._terminated = np.where(ended, self._terminated, terminated | failed)
        self._truncated = np.where(ended, self._truncated, truncated & ~failed)
        return Stepped(self.observation, reward, self._terminated, self._truncated)

    def close(self) -> None:
        """Gives the environments back. Closing twice does no harm."""
        for part in self._parts:
            if part.environment is not None:
                self._host.give_back(part)
        self._parts = []

    def _put(self, part: Part, observation: Any) -> None:
        try:
            array = np.asarray(observation, float)
        except (TypeError, ValueError):
            raise Misbehaved(f"observation is not an array of numbers but a {type(observation).__name__}") from None
        expected = part.lead + self._raw.shape[1:]
        if array.shape != expected:
            raise Misbehaved(f"observation has shape {array.shape} where {expected} belongs")
        self._raw[part.lanes] = array

    def _look(self, going: np.ndarray, reward: np.ndarray) -> None:
        """Takes over the new observations of lanes that are going, and ends those whose numbers are no good."""
        observation, good = self._observations.to_policy(self._raw, self._dtypes[0])
        fine = good & np.isfinite(reward)
        for lane in np.flatnonzero(going & ~self._failed & ~fine):
            part = next(p for p in self._parts if lane in np.atleast_1d(p.lanes))
            self._fail(part, lane, self._wrong_observation(lane) if not good[lane] else f"reward is {reward[lane]}")
        new = (going & ~self._failed).reshape(-1, *(1,) * (observation.ndim - 1))
        self.observation = np.where(new, observation, self.observation)

    def _wrong_observation(self, lane: int) -> str:
        raw = self._raw[lane]
        if isinstance(self._observations.space, Discrete):
            return f"observation is {raw:g}, not one of {self._observations.low[lane]:g} to {self._observations.high[lane]:g}"
        return f"observation holds {raw.flat[np.argmax(~(np.abs(raw) <= np.finfo(self._dtypes[0]).max))]}"

    def _fail(self, part: Part, lanes: Any, what: str) -> None:
        """Ends lanes that have not ended, and tells the first reason of an index."""
        part.broken = True
        self._failed[lanes] = True
        if part.index not in self._told:
            self._told.add(part.index)
            self._host.events.append(Event(part.index, what))


def _unpack(call: str, result: Any, names: tuple[str, ...]) -> tuple:
    if not isinstance(result, tuple) or len(result) != len(names):
        got = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
        raise Misbehaved(f"{call} returned {got} where ({', '.join(names)}) belong")
    return result


def _set(name: str, place: np.ndarray, lanes: Any, value: Any) -> None:
    try:
        place[lanes] = value
    except (TypeError, ValueError):
        raise Misbehaved(f"{name} is not a number but a {type(value).__name__}") from None


def _reason(call: str, error: Exception) -> str:
    return str(error) if isinstance(error, Misbehaved) else f"{call} raised {one_line(error)}"

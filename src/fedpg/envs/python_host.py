"""The host of environments with Gymnasium's interface.

    reset(seed=int) -> observation, info
    step(action)    -> observation, reward, terminated, truncated, info

Every lane has its own environment, or a place in a vector environment that steps all lanes of its agent. Every episode starts
from its own seed, so it does not matter which environment serves which lane: runs repeat and resume bit for bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedpg.envs.base import Discrete
from fedpg.envs.host import Event, Stepped
from fedpg.envs.spaces import View, shape_of
from fedpg.own import one_line

VECTOR_FROM = 8
"""Fewest lanes of a vector environment. CartPole's is 0.5 times as fast as a loop with 1 lane, 1.2 with 8, 3.5 with 32, 11 with 128."""
RESET = ("observation", "info")
STEP = ("observation", "reward", "terminated", "truncated", "info")


class InterfaceError(Exception):
    """An environment returned something that Gymnasium's interface does not allow."""


class Maker(NamedTuple):
    """How the environments of one agent are made.

    Attributes:
        single: () -> an environment.
        vector: lanes -> a vector environment of so many lanes, whose step returns the last observation of a lane that ends
            and may reset the lane after that; None if there is none.
    """

    single: Callable[[], Any]
    vector: Callable[[int], Any] | None = None


class Part:
    """An environment and the lanes it steps: one lane (a number), or all lanes of an agent (an array) in a vector environment."""

    def __init__(self, index: int, lanes: Any) -> None:
        self.index, self.lanes = index, lanes
        self.lead: tuple[int, ...] = np.shape(lanes)
        self.environment: Any = None
        self.broken = False


class PythonHost:
    """Makes sessions, and keeps environments between them. See `fedpg.envs.host.Host`.

    Args:
        makers: one per agent; agent index % N makes environment `index`.
        observations: view of the agents' observation spaces, leading axis N.
        actions: view of their action spaces.
        made: one existing environment per agent; seed 0 uses it.
    """

    def __init__(self, makers: list[Maker], observations: View, actions: View, made: list[Any]) -> None:
        self.events: list[Event] = []
        self._makers, self._observations, self._actions = makers, observations, actions
        # Found now: sessions are opened in threads of JAX, which do not know the precision of the thread that built the program.
        kind = int if isinstance(observations.space, Discrete) else float
        self._dtypes = (np.dtype(jnp.result_type(kind)), np.dtype(jnp.result_type(float)))
        self._free: dict[tuple, list[Any]] = {(i, ()): [environment] for i, environment in enumerate(made)}

    def reset(self, index: np.ndarray, start: np.ndarray) -> PythonSession:
        """Starts a lane in environment index[l], (L,), with the seed start[l], (L, 1)."""
        index, start = np.asarray(index), np.asarray(start)
        agent = index % len(self._makers)
        views = self._observations.rows(agent), self._actions.rows(agent)
        return PythonSession(self, list(self._divide(index, start)), start, *views, self._dtypes)

    def make_ready(self, seeds: int) -> None:
        """Makes the first environment of every agent and seed, so that one which cannot be made fails before a run starts."""
        for index in range(seeds * len(self._makers)):
            if not self._free.get((index, ())):
                self._free[index, ()] = [self._makers[index % len(self._makers)].single()]

    def take(self, part: Part) -> Any:
        """An environment for a part, which no other session uses."""
        free = self._free.setdefault((part.index, part.lead), [])
        with contextlib.suppress(IndexError):  # several threads open sessions: a pop is atomic, a check before it is not
            return free.pop()
        maker = self._makers[part.index % len(self._makers)]
        try:
            return maker.vector(*part.lead) if part.lead else maker.single()
        except Exception as error:
            raise InterfaceError(f"it cannot be made: {one_line(error)}") from error

    def give_back(self, part: Part) -> None:
        """Keeps the environment of a part for another session; closes one that failed, so that the next is new."""
        environment, part.environment = part.environment, None
        if part.broken:
            close_quietly(environment)
        else:
            self._free[part.index, part.lead].append(environment)

    def close(self) -> None:
        """Closes every environment that no session uses."""
        for environments in self._free.values():
            while environments:
                close_quietly(environments.pop())

    def _divide(self, index: np.ndarray, start: np.ndarray) -> Iterator[Part]:
        """Single environments, and a vector environment for each run of lanes that are one agent's sample.

        The lanes of a vector environment depend on its seed and on their number. So a sample must not be joined with another
        one beside it, not even with a copy of itself, with which an engine fills up its last chunk of seeds.
        """
        indices, seeds = index.tolist(), start[:, 0].tolist()
        first = 0
        for lane in range(1, len(indices) + 1):
            if lane < len(indices) and indices[lane] == indices[first] and seeds[lane] != seeds[first]:
                continue
            i, lanes = indices[first], range(first, lane)
            if self._makers[i % len(self._makers)].vector is not None and len(lanes) >= VECTOR_FROM:
                yield Part(i, np.array(lanes))
            else:
                yield from (Part(i, single) for single in lanes)
            first = lane


def close_quietly(environment: Any) -> None:
    """Closes an environment that is not used again, and may be broken."""
    with contextlib.suppress(Exception):
        environment.close()


class PythonSession:
    """L lanes under way. Lanes that have ended are not stepped, except beside others in a vector environment.

    Args:
        host: makes and keeps the environments.
        parts: all lanes, divided among environments.
        start: the seed of each lane, (L, 1).
        observations: view of the observation space, a row per lane.
        actions: view of the action space, a row per lane.
        dtypes: of observations and rewards in the compiled program.
    """

    def __init__(
        self, host: PythonHost, parts: list[Part], start: np.ndarray, observations: View, actions: View, dtypes: tuple[np.dtype, np.dtype]
    ) -> None:
        self._host, self._parts, self._dtypes = host, parts, dtypes
        self._observations, self._actions = observations, actions
        self._reported: set[int] = set()
        self._raw = np.zeros((len(start), *shape_of(observations.space)))
        self._terminated, self._truncated, self._failed = (np.zeros(len(start), bool) for _ in range(3))
        self.observation = self._raw.astype(dtypes[0])
        for part in parts:
            try:
                part.environment = host.take(part)
                seed = int(start[part.lanes].flat[0])  # a vector environment draws all its lanes from the seed of the first
                observation, _ = _unpack("reset", part.environment.reset(seed=seed), RESET)
                self._put(part, observation)
            except Exception as error:
                self._fail(part, part.lanes, _reason("reset", error))
        self._observe(~self._failed, np.zeros(len(start)))

    def step(self, action: np.ndarray) -> Stepped:
        """One step of every lane; `action` as the policy gives it, L rows."""
        lanes = len(self._raw)
        ended = self._terminated | self._truncated
        reward, terminated, truncated = np.zeros(lanes), np.zeros(lanes, bool), np.zeros(lanes, bool)
        action = np.asarray(action, float).reshape(lanes, *shape_of(self._actions.space))
        finite = np.isfinite(action)
        # An action that is not finite comes from an agent that failed earlier, which has been reported.
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
            self._observe(going, reward)
        failed = self._failed & ~ended
        reward = np.where(ended, 0.0, np.where(failed, np.nan, reward)).astype(self._dtypes[1])
        self._terminated = np.where(ended, self._terminated, terminated | failed)
        self._truncated = np.where(ended, self._truncated, truncated & ~failed)
        return Stepped(self.observation, reward, self._terminated, self._truncated)

    def close(self) -> None:
        """Gives the environments back; closing twice does no harm."""
        for part in self._parts:
            if part.environment is not None:
                self._host.give_back(part)
        self._parts = []

    def _put(self, part: Part, observation: Any) -> None:
        try:
            array = np.asarray(observation, float)
        except (TypeError, ValueError):
            raise InterfaceError(f"observation is a {type(observation).__name__}, not an array of numbers") from None
        expected = part.lead + self._raw.shape[1:]
        if array.shape != expected:
            raise InterfaceError(f"observation has shape {array.shape}, not {expected}")
        self._raw[part.lanes] = array

    def _observe(self, going: np.ndarray, reward: np.ndarray) -> None:
        """Sets the observations of the lanes that are going, and ends those with an invalid observation or reward."""
        observation, good = self._observations.to_policy(self._raw, self._dtypes[0])
        fine = good & np.isfinite(reward)
        for lane in np.flatnonzero(going & ~self._failed & ~fine):
            part = next(p for p in self._parts if lane in np.atleast_1d(p.lanes))
            self._fail(part, lane, self._invalid_observation(lane) if not good[lane] else f"reward is {reward[lane]}")
        new = (going & ~self._failed).reshape(-1, *(1,) * (observation.ndim - 1))
        self.observation = np.where(new, observation, self.observation)

    def _invalid_observation(self, lane: int) -> str:
        raw = self._raw[lane]
        if isinstance(self._observations.space, Discrete):
            return f"observation is {raw:g}, not one of {self._observations.low[lane]:g} to {self._observations.high[lane]:g}"
        return f"observation holds {raw.flat[np.argmax(~(np.abs(raw) <= np.finfo(self._dtypes[0]).max))]}"

    def _fail(self, part: Part, lanes: Any, what: str) -> None:
        """Ends lanes that have not ended, and reports the first reason of each environment."""
        part.broken = True
        self._failed[lanes] = True
        if part.index not in self._reported:
            self._reported.add(part.index)
            self._host.events.append(Event(part.index, what))


def _unpack(call: str, result: Any, names: tuple[str, ...]) -> tuple:
    if not isinstance(result, tuple) or len(result) != len(names):
        got = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
        raise InterfaceError(f"{call} returned {got}, not ({', '.join(names)})")
    return result


def _set(name: str, place: np.ndarray, lanes: Any, value: Any) -> None:
    try:
        place[lanes] = value
    except (TypeError, ValueError):
        raise InterfaceError(f"{name} is a {type(value).__name__}, not a number") from None


def _reason(call: str, error: Exception) -> str:
    return str(error) if isinstance(error, InterfaceError) else f"{call} raised {one_line(error)}"

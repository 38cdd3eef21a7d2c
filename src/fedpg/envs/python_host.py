"""The host of environments with Gymnasium's interface.

    reset(seed=int) -> observation, info
    step(action)    -> observation, reward, terminated, truncated, info

Every lane has its own environment, and every episode starts from its own seed. So it does not matter which environment serves
which lane: runs repeat and resume bit for bit.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedpg.envs.base import Discrete, space_size
from fedpg.envs.host import Event, Stepped
from fedpg.envs.spaces import View, shape_of
from fedpg.own import one_line

RESET = ("observation", "info")
STEP = ("observation", "reward", "terminated", "truncated", "info")
MOST_PAUSED = 1024
"""Environments that wait for their rollout to go on; further ones are led there again by their actions."""


class InterfaceError(Exception):
    """An environment returned something that Gymnasium's interface does not allow."""


class PythonHost:
    """Makes sessions, and keeps environments between them. See `fedpg.envs.host.Host`.

    Args:
        makers: for each agent, a function that makes an environment; agent index % N makes environment `index`.
        observations: view of the agents' observation spaces, leading axis N.
        actions: view of their action spaces.
        made: one existing environment per agent; seed 0 uses it.
    """

    def __init__(self, makers: list[Callable[[], Any]], observations: View, actions: View, made: list[Any]) -> None:
        self.events: list[Event] = []
        self._makers, self.observations, self.actions = makers, observations, actions
        # Found now: sessions are opened in threads of JAX, which do not know the precision of the thread that built the program.
        kind = int if isinstance(observations.space, Discrete) else float
        self._dtypes = (np.dtype(jnp.result_type(kind)), np.dtype(jnp.result_type(float)))
        self._free: dict[int, list[Any]] = {i: [environment] for i, environment in enumerate(made)}
        self._paused: OrderedDict[tuple[int, bytes], Any] = OrderedDict()
        self._lock = threading.Lock()

    def reset(self, index: np.ndarray, start: np.ndarray, new: np.ndarray | None = None) -> "PythonSession":
        """Starts a lane in environment index[l], (L,), with the seed start[l], (L, 1); only where new[l], if that is given."""
        index, start = np.asarray(index), np.asarray(start)
        agent = index % len(self._makers)
        return PythonSession(
            self, index.tolist(), start[:, 0].tolist(), self.observations.rows(agent), self.actions.rows(agent), self._dtypes, new
        )

    def words(self, horizon: int) -> int:
        """A state is the seed of the episode and its actions so far: an environment cannot be stored, but it can be led there again."""
        return 2 + horizon * space_size(self.actions.space) * self._dtypes[1].itemsize // 4

    def resume(self, index: np.ndarray, start: np.ndarray, state: np.ndarray, new: np.ndarray) -> "PythonSession":
        """Goes on from states that `PythonSession.save` gave, or starts lanes that are new."""
        session = self.reset(index, start, new)
        for lane in np.flatnonzero(~new).tolist():
            session.restore(lane, np.ascontiguousarray(state[lane]))
        session.words = state.shape[1]
        return session

    def pause(self, index: int, state: np.ndarray, environment: Any) -> None:
        """Keeps an environment that stands where `state` leads to, so that `proceed` need not lead another one there."""
        with self._lock:
            self._paused[index, state.tobytes()] = environment
            stale = self._paused.popitem(last=False) if len(self._paused) > MOST_PAUSED else None
        if stale:
            self.give_back(stale[0][0], stale[1], False)

    def proceed(self, index: int, state: np.ndarray) -> Any:
        """The environment that was paused in `state`; None if there is none."""
        with self._lock:
            return self._paused.pop((index, state.tobytes()), None)

    def make_ready(self, seeds: int) -> None:
        """Makes the first environment of every agent and seed, so that one which cannot be made fails before a run starts."""
        for index in range(seeds * len(self._makers)):
            if not self._free.get(index):
                self._free[index] = [self._makers[index % len(self._makers)]()]

    def take(self, index: int) -> Any:
        """An environment that no other session uses."""
        with contextlib.suppress(IndexError):  # several threads open sessions: a pop is atomic, a check before it is not
            return self._free.setdefault(index, []).pop()
        try:
            return self._makers[index % len(self._makers)]()
        except Exception as error:
            raise InterfaceError(f"it cannot be made: {one_line(error)}") from error

    def give_back(self, index: int, environment: Any, broken: bool) -> None:
        """Keeps an environment for another session; closes one that failed, so that the next is new."""
        if not broken:
            self._free[index].append(environment)
            return
        with contextlib.suppress(Exception):
            environment.close()


class PythonSession:
    """L lanes under way. Lanes that have ended are not stepped. `dtypes`: of observations and rewards in the compiled program."""

    def __init__(
        self,
        host: PythonHost,
        index: list[int],
        seeds: list[int],
        observations: View,
        actions: View,
        dtypes: tuple[np.dtype, np.dtype],
        new: np.ndarray | None = None,
    ) -> None:
        lanes = len(index)
        self._host, self._index, self._observations, self._actions, self._dtypes = host, index, observations, actions, dtypes
        self._environments: list[Any] = [None] * lanes
        self._broken: set[int] = set()  # lanes whose environment failed
        self._reported: set[int] = set()  # environments that had an event
        self._raw = np.zeros((lanes, *shape_of(observations.space)))
        self._terminated, self._truncated, self._failed = (np.zeros(lanes, bool) for _ in range(3))
        self.observation = self._raw.astype(dtypes[0])
        self._seeds, self._taken = list(seeds), [[] for _ in range(lanes)]  # the actions of every lane's episode
        self.words = 0  # of a state; 0 if the lanes end with the session
        starting = np.ones(lanes, bool) if new is None else new
        for lane in np.flatnonzero(starting).tolist():
            self._start(lane, seeds[lane])
        self._observe(starting & ~self._failed, np.zeros(lanes))

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
            if self.words:
                for lane in np.flatnonzero(going).tolist():
                    self._taken[lane].append(action[lane])
            action = self._actions.to_environment(np.where(finite, action, 0.0))
            for lane in np.flatnonzero(going).tolist():
                try:
                    result = _unpack("step", self._environments[lane].step(action[lane]), STEP)
                    self._put(lane, result[0])
                    for name, place, value in zip(STEP[1:4], (reward, terminated, truncated), result[1:4], strict=True):
                        _set(name, place, lane, value)
                except Exception as error:
                    self._fail(lane, _reason("step", error))
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
        for lane, environment in enumerate(self._environments):
            if environment is not None:
                self._host.give_back(self._index[lane], environment, lane in self._broken)
        self._environments = []

    def restart(self, lanes: np.ndarray, start: np.ndarray) -> None:
        """Starts some lanes again, unless they failed."""
        again = np.zeros(len(self._raw), bool)
        for lane, seed in zip(lanes.tolist(), start[:, 0].tolist(), strict=True):
            if not self._failed[lane]:
                self._start(lane, seed)
                again[lane] = True
        self._terminated, self._truncated = self._terminated & ~again, self._truncated & ~again
        self._observe(again, np.zeros(len(again)))

    def save(self) -> np.ndarray:
        """The seed, the number of actions and the actions of every lane. The environments stay at hand for `PythonHost.resume`."""
        states = np.zeros((len(self._raw), self.words), np.uint32)
        for lane, taken in enumerate(self._taken):
            states[lane, :2] = self._seeds[lane], len(taken)
            actions = np.asarray(taken, self._dtypes[1]).reshape(-1).view(np.uint32)
            states[lane, 2 : 2 + len(actions)] = actions
            if lane not in self._broken:
                self._host.pause(self._index[lane], states[lane], self._environments[lane])
                self._environments[lane] = None
        return states

    def restore(self, lane: int, state: np.ndarray) -> None:
        """Puts a lane where `save` found it: into the environment that waits there, or into one that is led there."""
        count = int(state[1])
        shape = (count, *shape_of(self._actions.space))
        width = int(np.prod(shape)) * self._dtypes[1].itemsize // 4
        actions = state[2 : 2 + width].view(self._dtypes[1]).reshape(shape).astype(float)
        self._seeds[lane], self._taken[lane] = int(state[0]), list(actions)
        self._environments[lane] = self._host.proceed(self._index[lane], state)
        if self._environments[lane] is not None:
            return
        self._start(lane, int(state[0]))
        self._taken[lane] = list(actions)
        try:
            view = self._actions.rows(np.full(count, lane))
            for action in view.to_environment(actions) if count else ():
                _unpack("step", self._environments[lane].step(action), STEP)
        except Exception as error:
            self._fail(lane, _reason("step", error))

    def _start(self, lane: int, seed: int) -> None:
        """Resets the environment of a lane, which gets one if it has none."""
        self._seeds[lane], self._taken[lane] = seed, []
        try:
            if self._environments[lane] is None:
                self._environments[lane] = self._host.take(self._index[lane])
            observation, _ = _unpack("reset", self._environments[lane].reset(seed=seed), RESET)
            self._put(lane, observation)
        except Exception as error:
            self._fail(lane, _reason("reset", error))

    def _put(self, lane: int, observation: Any) -> None:
        try:
            array = np.asarray(observation, float)
        except (TypeError, ValueError):
            raise InterfaceError(f"observation is a {type(observation).__name__}, not an array of numbers") from None
        if array.shape != self._raw.shape[1:]:
            raise InterfaceError(f"observation has shape {array.shape}, not {self._raw.shape[1:]}")
        self._raw[lane] = array

    def _observe(self, going: np.ndarray, reward: np.ndarray) -> None:
        """Sets the observations of the lanes that are going, and ends those with an invalid observation or reward."""
        observation, good = self._observations.to_policy(self._raw, self._dtypes[0])
        for lane in np.flatnonzero(going & ~self._failed & ~(good & np.isfinite(reward))).tolist():
            self._fail(lane, self._invalid_observation(lane) if not good[lane] else f"reward is {reward[lane]}")
        new = (going & ~self._failed).reshape(-1, *(1,) * (observation.ndim - 1))
        self.observation = np.where(new, observation, self.observation)

    def _invalid_observation(self, lane: int) -> str:
        raw = self._raw[lane]
        if isinstance(self._observations.space, Discrete):
            return f"observation is {raw:g}, not one of {self._observations.low[lane]:g} to {self._observations.high[lane]:g}"
        return f"observation holds {raw.flat[np.argmax(~(np.abs(raw) <= np.finfo(self._dtypes[0]).max))]}"

    def _fail(self, lane: int, what: str) -> None:
        """Ends a lane, and reports the first failure of its environment."""
        self._broken.add(lane)
        self._failed[lane] = True
        if self._index[lane] not in self._reported:
            self._reported.add(self._index[lane])
            self._host.events.append(Event(self._index[lane], what))


def _unpack(call: str, result: Any, names: tuple[str, ...]) -> tuple:
    if not isinstance(result, tuple) or len(result) != len(names):
        got = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
        raise InterfaceError(f"{call} returned {got}, not ({', '.join(names)})")
    return result


def _set(name: str, place: np.ndarray, lane: int, value: Any) -> None:
    try:
        place[lane] = value
    except (TypeError, ValueError):
        raise InterfaceError(f"{name} is a {type(value).__name__}, not a number") from None


def _reason(call: str, error: Exception) -> str:
    return str(error) if isinstance(error, InterfaceError) else f"{call} raised {one_line(error)}"

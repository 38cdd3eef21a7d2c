"""A host of environments with Gymnasium's interface.

    reset(seed=int) -> observation, info
    step(action)    -> observation, reward, terminated, truncated, info

Every lane has an environment to itself, or a place in a vector environment that steps all of its agent's lanes. Every episode
starts from its own seed, so it does not matter which environment serves which lane: runs repeat and resume bit for bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedpg.envs.base import Discrete
from fedpg.envs.host import Event
from fedpg.envs.python.session import Misbehaved, Part, PythonSession, one_line
from fedpg.envs.python.spaces import View

VECTOR_FROM = 8
"""Fewest lanes of a vector environment. CartPole's is 0.5 times as fast as a loop with 1 lane, 1.2 with 8, 3.5 with 32, 11 with 128."""


class Maker(NamedTuple):
    """How one agent's environments are made.

    Attributes:
        single: () -> an environment.
        vector: lanes -> a vector environment of so many lanes, whose step returns an ended lane's last observation and may
            reset the lane after that; None if there is no such thing.
    """

    single: Callable[[], Any]
    vector: Callable[[int], Any] | None = None


class PythonHost:
    """Makes sessions, and keeps environments between them.

    Args:
        makers: one per agent; agent index % N makes environment `index`.
        observations: how the policy sees the agents' observations, leading axis N.
        actions: the same for their actions.
        made: one environment per agent that exists already; seed 0 uses it.
    """

    def __init__(self, makers: list[Maker], observations: View, actions: View, made: list[Any]) -> None:
        self.events: list[Event] = []
        self._makers, self._observations, self._actions = makers, observations, actions
        # Asked now: sessions are opened in threads of JAX, which do not know the precision of the thread that built the program.
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
        """Makes every agent's first environment of every seed, so that one which cannot be made is told before a run starts."""
        for index in range(seeds * len(self._makers)):
            if not self._free.get((index, ())):
                self._free[index, ()] = [self._makers[index % len(self._makers)].single()]

    def take(self, part: Part) -> Any:
        """An environment for a part, which no other session uses."""
        free = self._free.setdefault((part.index, part.lead), [])
        # Several threads may open sessions; a pop is atomic, a look before it would not be.
        with contextlib.suppress(IndexError):
            return free.pop()
        maker = self._makers[part.index % len(self._makers)]
        try:
            return maker.vector(*part.lead) if part.lead else maker.single()
        except Exception as error:
            raise Misbehaved(f"it cannot be made: {one_line(error)}") from error

    def give_back(self, part: Part) -> None:
        """Keeps a part's environment for another session; closes and forgets one that failed, so that the next is fresh."""
        environment, part.environment = part.environment, None
        if part.broken:
            shut(environment)
        else:
            self._free[part.index, part.lead].append(environment)

    def close(self) -> None:
        """Closes every environment that no session uses."""
        for environments in self._free.values():
            while environments:
                shut(environments.pop())

    def _divide(self, index: np.ndarray, start: np.ndarray) -> Iterator[Part]:
        """Single environments, and a vector one for each run of lanes that are one agent's sample.

        The lanes of a vector environment start from one seed and from how many they are. So what runs beside a sample must not
        join it, not even a copy of itself, with which an engine fills up its last chunk of seeds.
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


def shut(environment: Any) -> None:
    """Closes an environment that is not used again and may be past closing."""
    with contextlib.suppress(Exception):
        environment.close()

"""Environments that run in Python beside the compiled program: their interface, and how failures are reported.

A *lane* is one trajectory in the environment of one agent. A `Host` steps any number of lanes together; the compiled program
calls it once per step for all lanes of all agents and seeds (see `fedpg.gradients.host_rollout`). A lane that raises, or returns
numbers that are not finite or arrays of the wrong shape, ends there with reward NaN. This makes the message of its agent not
finite, and the engine leaves that agent out of the round. The reason is appended to `Host.events`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from fedpg.envs.base import Space


class Event(NamedTuple):
    """A failure in the environment of one agent."""

    index: int  # which environment: seed * N + agent
    what: str  # one line that says what happened


class Stepped(NamedTuple):
    """The result of one step of L lanes. Lanes that had ended before stand still with reward 0."""

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


class Session(Protocol):
    """L lanes under way. `observation` is where they are, (L, ...); `close` frees what they use.

    Lanes that outlive a session, of `Host.resume`, also need these:
        restart: starts the lanes `lanes` again, from one row of `start` each.
        save: the states of all lanes, (L, W) words of 32 bits, from which `Host.resume` goes on bit for bit.
    """

    observation: np.ndarray

    def step(self, action: np.ndarray) -> Stepped: ...
    def close(self) -> None: ...
    def restart(self, lanes: np.ndarray, start: np.ndarray) -> None: ...
    def save(self) -> np.ndarray: ...


class Host(Protocol):
    """Makes sessions, of which several may be open at once. A reader of `events` also empties it."""

    events: list[Event]

    def words(self, horizon: int) -> int:
        """W, how many words of 32 bits hold the state of a lane whose episodes have at most `horizon` steps."""
        ...

    def resume(self, index: np.ndarray, start: np.ndarray, state: np.ndarray, new: np.ndarray) -> Session:
        """Goes on in environment index[l] from state[l], (W,), for every l; where new[l] it starts from start[l], as in `reset`."""
        ...

    def reset(self, index: np.ndarray, start: np.ndarray) -> Session:
        """Starts a lane in environment index[l] from start[l] for every l; both have a leading axis L."""
        ...


class Member(NamedTuple):
    """An agent of a host environment, as the compiled program knows it."""

    index: jax.Array  # which environment of the host it has: seed * N + agent, ()
    start: Any = ()  # argument of `HostEnvironment.start`


class HostEnvironment(NamedTuple):
    """One task that is stepped in Python, the same for all agents. The first three fields are those of `Environment`.

    Attributes:
        start: (key, Member.start) -> what a lane starts from, an array: a start state, or the bits of a seed. JAX draws it, so
            that runs repeat and resume bit for bit.
        host: steps the lanes.
    """

    name: str
    observation_space: Space
    action_space: Space
    start: Callable[[jax.Array, Any], jax.Array]
    host: Host

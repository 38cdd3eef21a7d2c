"""Environments that run in Python beside the jitted program: what the program asks of them, and how failures are told.

A *lane* is one trajectory in one agent's environment. A `Host` steps any number of lanes together; the jitted program calls
it once per step for all lanes of all agents and seeds (see `fedpg.gradients.host_rollout`). A lane that raises, returns
numbers that are not finite or arrays of the wrong shape ends there with reward NaN, which makes its agent's message not
finite: the engine then gives that agent weight 0 for the round. The reason is kept in `Host.events`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from fedpg.envs.base import Space


class Event(NamedTuple):
    """Something that went wrong in one agent's environment.

    Attributes:
        index: which environment: seed * N + agent.
        what: one line for people.
    """

    index: int
    what: str


class Stepped(NamedTuple):
    """What one step of L lanes returns. Lanes that had ended before stand still with reward 0."""

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


class Session(Protocol):
    """L lanes under way. `observation` is where they start, (L, ...); `close` gives back what the lanes occupy."""

    observation: np.ndarray

    def step(self, action: np.ndarray) -> Stepped: ...
    def close(self) -> None: ...


class Host(Protocol):
    """Makes sessions. Several may be open at once. `events` grows; whoever reads it empties it."""

    events: list[Event]

    def reset(self, index: np.ndarray, start: np.ndarray) -> Session:
        """Starts a lane in environment index[l] from start[l] for every l; both have a leading axis L."""
        ...


class Member(NamedTuple):
    """What a host environment's agent is to the jitted program.

    Attributes:
        index: which of the host's environments is its own: seed * N + agent, ().
        start: numbers that `HostEnvironment.start` needs; () if none.
    """

    index: jax.Array
    start: Any = ()


class HostEnvironment(NamedTuple):
    """One task, for every agent, stepped in Python.

    Attributes:
        name: what `--env` calls it.
        observation_space: what the policy sees.
        action_space: what the policy does.
        start: (key, Member.start) -> what a lane starts from, an array: a start state, or the bits of a seed. It is drawn
            by JAX, so that a run can be repeated and resumed bit for bit.
        host: steps the lanes.
    """

    name: str
    observation_space: Space
    action_space: Space
    start: Callable[[jax.Array, Any], jax.Array]
    host: Host

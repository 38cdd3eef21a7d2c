"""One small world twice: traced, and stepped in Python. Whatever differs between the two is the host's doing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.envs.base import Box, Environment, Step
from fedpg.envs.host import Event, HostEnvironment, Member, Stepped

SHIFT = 3.0
"""Observations are the place plus this, so that their mean is not 0."""


def _start(key: jax.Array, width: jax.Array) -> jax.Array:
    return width * jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)


def _step(noise: jax.Array, state: jax.Array, action: jax.Array, width: jax.Array) -> Step:
    after = 0.9 * state + 0.2 * action
    ended = after[0] > 0.5
    return Step(after, after + SHIFT, -jnp.sum(jnp.square(after)), ended, jnp.zeros((), bool))


def _reset(key: jax.Array, width: jax.Array) -> tuple[jax.Array, jax.Array]:
    state = _start(key, width)
    return state, state + SHIFT


TRACED = Environment("slide", Box((2,)), Box((2,)), _reset, _step, lambda key, n: jnp.zeros(n))
"""Two coordinates that fade and are pushed; ends when the first is above 0.5. An agent is its start's width."""


class SlideSession:
    def __init__(self, host: SlideHost, index: np.ndarray, start: np.ndarray) -> None:
        self.host, self.index, self.state, self.alive = host, index, start, np.ones(len(index), bool)
        self.observation = start + SHIFT

    def step(self, action: np.ndarray) -> Stepped:
        self.host.steps += int(self.alive.sum())
        moved = np.float32(0.9) * self.state + np.float32(0.2) * action
        reward = np.where(self.alive, -np.sum(np.square(moved), axis=1), 0.0)
        for index in np.unique(self.index[self.alive]):
            if self.host.breaks(int(index)):
                self.host.events.append(Event(int(index), "broken"))
                reward[self.index == index] = np.nan
        ended = self.alive & ((moved[:, 0] > 0.5) | np.isnan(reward))
        self.state = np.where(self.alive[:, None], moved, self.state)
        self.alive = self.alive & ~ended
        self.observation = self.state + SHIFT
        return Stepped(self.observation, reward, ended, np.zeros_like(ended))

    def restart(self, lanes: np.ndarray, start: np.ndarray) -> None:
        self.state, self.alive = self.state.copy(), self.alive.copy()
        self.state[lanes], self.alive[lanes] = start, True
        self.observation = self.state + SHIFT

    def save(self) -> np.ndarray:
        return np.ascontiguousarray(self.state, np.float64).view(np.uint32)

    def close(self) -> None:
        self.host.closed += 1


class SlideHost:
    """The same in NumPy; `broken` are the environments that fail."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.broken: set[int] = set()
        self.steps = self.closed = 0

    def breaks(self, index: int) -> bool:
        return index in self.broken

    def reset(self, index: np.ndarray, start: np.ndarray) -> SlideSession:
        return SlideSession(self, index, start)

    def words(self, horizon: int) -> int:
        return 4

    def resume(self, index: np.ndarray, start: np.ndarray, state: np.ndarray, new: np.ndarray) -> SlideSession:
        kept = np.ascontiguousarray(state).view(np.float64).astype(start.dtype)
        return SlideSession(self, index, np.where(new[:, None], start, kept))


def hosted(host: SlideHost) -> HostEnvironment:
    return HostEnvironment("slide", TRACED.observation_space, TRACED.action_space, _start, host)


def widths(agents: int) -> jax.Array:
    """N agents of the traced world."""
    return jnp.linspace(0.2, 0.6, agents)


def members(agents: int) -> Member:
    """The same N agents for the host, before `prepare`."""
    return Member(jnp.arange(agents), widths(agents))


def prepare(member: Member) -> Member:
    seeds, agents = member.index.shape
    return member._replace(index=np.arange(seeds * agents).reshape(seeds, agents))

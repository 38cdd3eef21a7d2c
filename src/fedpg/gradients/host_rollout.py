"""Rollouts in environments that run in Python: the policy stays in the compiled program, each step is one call out of it.

A step is *one* call for the lanes of all agents and seeds that are vmapped around it, so the host can step them together. One
array goes out and one comes back, because every further array costs as much again.
"""

import itertools
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.envs.base import Discrete, Space, space_size
from fedpg.envs.host import Host, HostEnvironment, Session
from fedpg.gradients.host_call import host_call
from fedpg.gradients.rollout import Trajectory
from fedpg.policies.base import Policy
from fedpg.trees import Params

MOST_SESSIONS = 2**20
"""Session numbers repeat after this many: a float32 must hold them exactly."""


class Sessions:
    """The open sessions of one host, by number.

    The number is passed through the program from call to call. It makes every call depend on the one before, so that the
    compiler cannot reorder them, and it separates samples that the compiler runs at the same time.
    """

    def __init__(self, host: Host, horizon: int) -> None:
        self._host, self._horizon = host, horizon
        self._open: dict[int, tuple[Session, int]] = {}
        self._numbers, self._lock = itertools.count(), threading.Lock()

    def reset(self, index: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Opens a session; a row per lane: its first observation and the session's number."""
        lanes = start.shape[:-1]
        start = np.asarray(start).reshape(-1, start.shape[-1])
        index = np.broadcast_to(np.asarray(index)[..., None], lanes).reshape(-1)
        session = self._host.reset(index, start)
        with self._lock:
            number = next(self._numbers) % MOST_SESSIONS
            self._open[number] = (session, 0)
        return side_by_side(lanes, session.observation, np.full(len(index), number))

    def step(self, rows: np.ndarray) -> np.ndarray:
        """One step of every lane; rows of (action, number) in, rows of (observation, reward, terminated, truncated, number) out."""
        rows = np.asarray(rows)
        flat = rows.reshape(-1, rows.shape[-1])
        number = int(flat[0, -1])
        session, done = self._open[number]
        after = session.step(flat[:, :-1])
        if done + 1 == self._horizon:
            del self._open[number]
            session.close()
        else:
            self._open[number] = (session, done + 1)
        return side_by_side(rows.shape[:-1], after.observation, after.reward, after.terminated, after.truncated, flat[:, -1])


def side_by_side(lanes: tuple[int, ...], *columns: np.ndarray) -> np.ndarray:
    """Columns of L lanes side by side, shaped (*lanes, width)."""
    flat = [column.reshape(len(column), -1) for column in columns]
    rows = np.empty((len(flat[0]), sum(column.shape[1] for column in flat)), float if jax.config.jax_enable_x64 else np.float32)
    np.concatenate(flat, axis=1, out=rows, casting="unsafe")
    return rows.reshape(*lanes, -1)


def element(space: Space, numbers: jax.Array) -> jax.Array:
    """An element of `space` from its numbers, which are the last axis."""
    if isinstance(space, Discrete):
        return numbers[..., 0].astype(int)
    return numbers.reshape(*numbers.shape[:-1], *space.shape)


def host_rollouts(environment: HostEnvironment, policy: Policy, horizon: int, keys: jax.Array, params: Params, member: Any) -> Trajectory:
    """Samples one trajectory of `member`'s environment for each of `keys`; leading axis B. Same keys as `rollout`."""
    sessions = Sessions(environment.host, horizon)
    lanes, width = keys.shape[0], space_size(environment.observation_space)

    def call(function: Any, columns: int, *args: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct((lanes, columns), jnp.zeros(()).dtype)
        return host_call(function, shape, *args)

    start_key, action_key, _ = jnp.moveaxis(jax.vmap(lambda key: jax.random.split(key, 3))(keys), 1, 0)
    noise = jax.vmap(policy.draw, (0, None), 1)(action_key, horizon)
    start = jax.vmap(environment.start, (0, None))(start_key, member.start)
    first = call(sessions.reset, width + 1, member.index, start)

    def step(carry: tuple, noise: Any) -> tuple:
        observation, number, alive = carry
        action = jax.vmap(policy.act, (0, None, 0))(noise, params, observation)
        row = call(sessions.step, width + 4, jnp.concatenate([action.reshape(lanes, -1).astype(number.dtype), number], axis=1))
        reward, ended = row[:, width], (row[:, width + 1] + row[:, width + 2]) > 0
        kept = Trajectory(observation, action, jnp.where(alive, reward, 0.0), alive.astype(reward.dtype))
        return (element(environment.observation_space, row[:, :width]), row[:, width + 3 :], alive & ~ended), kept

    carry = (element(environment.observation_space, first[:, :width]), first[:, width:], jnp.ones(lanes, bool))
    _, trajectory = jax.lax.scan(step, carry, noise)
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), trajectory)

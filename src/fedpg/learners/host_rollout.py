"""Rollouts that go on where they stopped, in environments that run in Python. See `fedpg.learners.rollout`.

The state of a lane is a row of 32-bit words that its host writes and reads, so it is stored with the agent like every other number:
a rollout depends on its arguments only, and a restored run goes on bit for bit.
"""

import itertools
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.envs.base import space_size
from fedpg.envs.host import Host, HostEnvironment, Session
from fedpg.gradients.host_call import host_call
from fedpg.gradients.host_rollout import MOST_SESSIONS, element, side_by_side
from fedpg.learners.rollout import NOT_STARTED, Draw, Lanes, Rollout
from fedpg.policies.base import Policy
from fedpg.trees import Params


class Stretch:
    """L lanes of one session under way, which start again when an episode ends.

    Args:
        session: of the host.
        elapsed: steps of each lane's episode so far, (L,).
        horizon: where episodes are truncated.
        starts: what each lane starts from after the step in which its episode ended, (L, T, ...).
    """

    def __init__(self, session: Session, elapsed: np.ndarray, horizon: int, starts: np.ndarray) -> None:
        self.session, self._elapsed, self._horizon, self._starts, self.done = session, elapsed, horizon, starts, 0

    def step(self, action: np.ndarray) -> tuple[np.ndarray, ...]:
        """What followed, reward, terminated, ended, and the observation of the next step, L rows each."""
        after = self.session.step(action)
        self._elapsed = self._elapsed + 1
        ended = after.terminated | after.truncated | (self._elapsed >= self._horizon)
        followed, reward, terminated = after.observation.copy(), np.asarray(after.reward), np.asarray(after.terminated)
        lanes = np.flatnonzero(ended)
        if len(lanes):
            self.session.restart(lanes, self._starts[lanes, self.done])
            self._elapsed[lanes] = 0
        self.done += 1
        return followed, reward, terminated, ended, self.session.observation


class Stretches:
    """The rollouts under way of one host, by number; see `fedpg.gradients.host_rollout.Sessions` for what the number is for."""

    def __init__(self, host: Host, horizon: int) -> None:
        self._host, self._horizon = host, horizon
        self._open: dict[int, Stretch] = {}
        self._numbers, self._lock = itertools.count(), threading.Lock()

    def begin(self, index: np.ndarray, state: np.ndarray, elapsed: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Opens a session; a row per lane: its observation, which matters where it is new, and the session's number."""
        lanes = np.shape(elapsed)
        index = np.broadcast_to(np.asarray(index)[..., None], lanes).reshape(-1)
        elapsed = np.asarray(elapsed).reshape(-1)
        state, starts = np.asarray(state).reshape(len(index), -1), np.asarray(starts).reshape(len(index), *np.shape(starts)[-2:])
        session = self._host.resume(index, starts[:, 0], state, elapsed == NOT_STARTED)
        stretch = Stretch(session, np.maximum(elapsed, 0), self._horizon, starts[:, 1:])
        with self._lock:
            number = next(self._numbers) % MOST_SESSIONS
            self._open[number] = stretch
        return side_by_side(lanes, session.observation, np.full(len(index), number))

    def step(self, rows: np.ndarray) -> np.ndarray:
        """One step; rows of (action, number) in, rows of (what followed, next observation, reward, terminated, ended, number) out."""
        rows = np.asarray(rows)
        flat = rows.reshape(-1, rows.shape[-1])
        followed, reward, terminated, ended, observation = self._open[int(flat[0, -1])].step(flat[:, :-1])
        return side_by_side(rows.shape[:-1], followed, observation, reward, terminated, ended, flat[:, -1])

    def last_step(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The last step, and the state in which every lane stops."""
        after, number = self.step(rows), int(np.asarray(rows).reshape(-1, np.shape(rows)[-1])[0, -1])
        session = self._open.pop(number).session
        state = session.save()
        session.close()
        return after, state.reshape(*np.shape(rows)[:-1], -1)


def host_sampler(environment: HostEnvironment, policy: Policy, horizon: int, steps: int) -> Draw:
    """Draws rollouts of T = `steps` in an environment that runs in Python."""
    stretches = Stretches(environment.host, horizon)
    width = space_size(environment.observation_space)

    def draw(key: jax.Array, params: Params, member: Any, lanes: Lanes) -> tuple[Rollout, Lanes]:
        count = lanes.elapsed.shape[0]
        real = jnp.zeros(()).dtype
        # The same keys as in an environment in JAX.
        split = jax.vmap(jax.random.split, (0, None))
        start_key, action_key, _ = jnp.moveaxis(split(jax.random.split(key, count), 3), 1, 0)
        starts = jax.vmap(jax.vmap(environment.start, (0, None)), (0, None))(split(start_key, steps + 1), member.start)
        noise = jax.vmap(policy.draw, (0, None), 1)(action_key, steps)

        def call(function: Any, shape: Any, *args: jax.Array) -> Any:
            return host_call(function, shape, *args)

        stepped = jax.ShapeDtypeStruct((count, 2 * width + 4), real)
        begun = jax.ShapeDtypeStruct((count, width + 1), real)
        first = call(stretches.begin, begun, member.index, lanes.state, lanes.elapsed, starts)
        new = lanes.elapsed == NOT_STARTED
        started = element(environment.observation_space, first[:, :width])
        observation = jnp.where(new.reshape(-1, *(1,) * (started.ndim - 1)), started, lanes.observation)

        def acted(carry: tuple, noise: Any) -> tuple[jax.Array, jax.Array]:
            action = jax.vmap(policy.act, (0, None, 0))(noise, params, carry[0])
            return action, jnp.concatenate([action.reshape(count, -1).astype(real), carry[1]], axis=1)

        def after(carry: tuple, action: jax.Array, row: jax.Array) -> tuple[tuple, Rollout]:
            observation, _, elapsed, total = carry
            followed, following = (element(environment.observation_space, row[:, i * width : (i + 1) * width]) for i in (0, 1))
            reward, terminated, ended = row[:, 2 * width], row[:, 2 * width + 1] > 0, row[:, 2 * width + 2] > 0
            total = total + reward
            kept = Rollout(observation, action, reward, terminated, ended, followed, jnp.where(ended, total, 0.0))
            carry = (following, row[:, 2 * width + 3 :], jnp.where(ended, 0, elapsed + 1), jnp.where(ended, 0.0, total))
            return carry, kept

        def step(carry: tuple, noise: Any) -> tuple[tuple, Rollout]:
            action, row = acted(carry, noise)
            return after(carry, action, call(stretches.step, stepped, row))

        carry = (observation, first[:, width:], jnp.maximum(lanes.elapsed, 0), lanes.total)
        carry, most = jax.lax.scan(step, carry, jax.tree.map(lambda x: x[:-1], noise))
        action, row = acted(carry, jax.tree.map(lambda x: x[-1], noise))
        states = jax.ShapeDtypeStruct(lanes.state.shape, lanes.state.dtype)
        row, state = call(stretches.last_step, (stepped, states), row)
        (observation, _, elapsed, total), last = after(carry, action, row)
        rollout = jax.tree.map(lambda rows, end: jnp.moveaxis(jnp.concatenate([rows, end[None]]), 0, 1), most, last)
        return rollout, Lanes(state, observation, elapsed, total)

    return draw

"""Rollouts that go on where they stopped: T steps in each of B lanes, however long an episode is.

A lane is one environment of an agent. It keeps its state between rollouts. When an episode ends, the lane starts the next one from
a fresh start state. Reaching `horizon` truncates an episode, which is not termination: the value of what followed still counts.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.envs.base import Environment, zero
from fedpg.policies.base import Policy
from fedpg.trees import Params

NOT_STARTED = -1
"""`Lanes.elapsed` before the first rollout."""


class Rollout(NamedTuple):
    """T steps in each of B lanes, axes (B, T, ...)."""

    observation: jax.Array
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array  # whether the task ended with this step
    ended: jax.Array  # whether the episode ended: terminated, or truncated by a time limit
    next_observation: jax.Array  # what followed the action, before any new start
    finished: jax.Array  # the undiscounted return of the episode that ended here, 0 elsewhere


class Lanes(NamedTuple):
    """Where B lanes stopped."""

    state: Any  # of the environments, leading axis B
    observation: jax.Array  # (B, ...)
    elapsed: jax.Array  # steps of the episode so far, (B,); `NOT_STARTED` before the first
    total: jax.Array  # undiscounted return of the episode so far, (B,)


Draw = Callable[[jax.Array, Params, Any, Lanes], tuple[Rollout, Lanes]]
"""(key, params, agent, lanes) -> the next T steps of every lane, and where they stopped."""


def no_lanes(environment: Any, state: Any, lanes: int) -> Lanes:
    """B lanes that have not started; `state` is one state of their environment, of any value."""
    empty = jax.tree.map(lambda x: jnp.zeros((lanes, *x.shape), x.dtype), (state, zero(environment.observation_space)))
    return Lanes(*empty, jnp.full(lanes, NOT_STARTED), jnp.zeros(lanes))


def sampler(environment: Environment, policy: Policy, horizon: int, steps: int) -> Draw:
    """Draws rollouts of T = `steps` in an environment in JAX."""

    def one(key: jax.Array, params: Params, agent: Any, lane: Lanes) -> tuple[Rollout, Lanes]:
        start_key, action_key, step_key = jax.random.split(key, 3)
        # Every start that may be needed is drawn beforehand, which is faster than inside the loop; the first is for a lane that is new.
        starts = jax.vmap(environment.reset, (0, None))(jax.random.split(start_key, steps + 1), agent)
        first = Lanes(*trees.take(starts, 0), jnp.zeros_like(lane.elapsed), jnp.zeros_like(lane.total))
        lane = trees.select(lane.elapsed == NOT_STARTED, first, lane)
        noise = (policy.draw(action_key, steps), environment.draw(step_key, steps), jax.tree.map(lambda x: x[1:], starts))

        def step(lane: Lanes, noise: tuple) -> tuple[Lanes, Rollout]:
            action = policy.act(noise[0], params, lane.observation)
            after = environment.transition(noise[1], lane.state, action, agent)
            elapsed, total = lane.elapsed + 1, lane.total + after.reward
            ended = after.terminated | after.truncated | (elapsed >= horizon)
            finished = jnp.where(ended, total, 0.0)
            row = Rollout(lane.observation, action, after.reward, after.terminated, ended, after.observation, finished)
            fresh = Lanes(*noise[2], jnp.zeros_like(elapsed), jnp.zeros_like(total))
            return trees.select(ended, fresh, Lanes(after.state, after.observation, elapsed, total)), row

        lane, rollout = jax.lax.scan(step, lane, noise)
        return rollout, lane

    def draw(key: jax.Array, params: Params, agent: Any, lanes: Lanes) -> tuple[Rollout, Lanes]:
        return jax.vmap(one, (0, None, None, 0))(jax.random.split(key, lanes.elapsed.shape[0]), params, agent, lanes)

    return draw

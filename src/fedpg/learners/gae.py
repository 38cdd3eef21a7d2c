"""Advantages and value targets of rollouts in which episodes end, are truncated, or go on later.

    delta_t = r_t + gamma V(s'_t) (1 - terminated_t) - V(s_t)
    A_t     = delta_t + gamma lambda (1 - ended_t) A_{t+1}

s'_t is what followed the action. After termination there is nothing to come; after truncation, and after the last step of a rollout,
V(s'_t) stands for it. Schulman et al., "High-dimensional continuous control using generalized advantage estimation", ICLR 2016.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpg import moments, trees
from fedpg.moments import Moments

LARGEST_REWARD = 10.0
"""Scaled rewards are clipped to +- this."""


def advantages(
    reward: jax.Array, value: jax.Array, next_value: jax.Array, terminated: jax.Array, ended: jax.Array, discount: float, decay: float
) -> jax.Array:
    """A_t of one lane, (T,); `decay` is lambda.

    >>> one, no = jnp.ones(2), jnp.zeros(2, bool)
    >>> advantages(one, 0 * one, one, no, no, 0.5, 0.5).tolist()
    [1.875, 1.5]
    """
    delta = reward + discount * jnp.where(terminated, 0.0, next_value) - value

    def back(after: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        here = now[0] + discount * decay * jnp.where(now[1], 0.0, after)
        return here, here

    return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, ended), reverse=True)[1]


class RewardScale(NamedTuple):
    """What rewards are divided by: the standard deviation of the discounted return so far, over all steps of an agent.

    Attributes:
        running: sum_{h<=t} gamma^(t-h) r_h of every lane's episode, (B,).
        seen: the moments of its values so far, D = 1.
    """

    running: jax.Array
    seen: Moments


def no_rewards(lanes: int) -> RewardScale:
    """The scale before the first reward."""
    return RewardScale(jnp.zeros(lanes), moments.nothing(1))


def scale_rewards(scale: RewardScale, reward: jax.Array, ended: jax.Array, discount: float) -> tuple[jax.Array, RewardScale]:
    """Scaled rewards of B lanes, (B, T), and the scale that they were divided by."""

    def step(running: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        running = now[0] + discount * running
        return jnp.where(now[1], 0.0, running), running

    running, values = jax.lax.scan(step, scale.running, (reward.T, ended.T))
    new = moments.observed(values.reshape(-1, 1), jnp.ones(values.size))
    seen = moments.merge(trees.stack([scale.seen, new]))
    scaled = reward / jnp.sqrt(moments.variance(seen)[0] + 1e-8)
    return jnp.clip(scaled, -LARGEST_REWARD, LARGEST_REWARD), RewardScale(running, seen)

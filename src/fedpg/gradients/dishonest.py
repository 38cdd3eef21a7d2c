"""Trajectories of agents that may lie about them: attacks that act before a gradient is taken.

    reward-flip       r_t is reported as -r_t
    random-action     a_t is uniform instead of drawn from the policy, and reported as if the policy had drawn it
    shuffled-reward   the rewards of a trajectory are reported in a random order of its steps

An honest agent draws the same random numbers, and so the same trajectories, as if there were no suspects.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.envs.base import Discrete, Environment, Space, space_size
from fedpg.envs.host import HostEnvironment
from fedpg.gradients import batch
from fedpg.gradients.rollout import Trajectory
from fedpg.policies.base import Policy
from fedpg.trees import Params

ATTACKS = ("reward-flip", "random-action", "shuffled-reward")
HONEST, REWARD_FLIP, RANDOM_ACTION, SHUFFLED_REWARD = range(4)
"""What `Suspect.attack` says."""
LIES = 0x11E5
"""Folded into a key for the attack's own random numbers."""


class Suspect(NamedTuple):
    """An agent of which it is not known whether it is honest.

    Attributes:
        constants: those of its environment.
        attack: 0 = honest, else which of `ATTACKS`, counted from 1, (); a real number, as constants are.
    """

    constants: Any
    attack: jax.Array


def random_action(space: Space, uniform: jax.Array) -> jax.Array:
    """A uniform element of the space, from as many uniform numbers as it has entries; an open end counts as 1."""
    if isinstance(space, Discrete):
        return jnp.minimum((uniform[0] * space.n).astype(jnp.int32), space.n - 1)
    low, high = max(space.low, -1.0), min(space.high, 1.0)
    return (low + (high - low) * uniform).reshape(space.shape)


def shuffled(key: jax.Array, tau: Trajectory) -> jax.Array:
    """The rewards of one trajectory in a random order of its executed steps, (H,)."""
    steps = jnp.arange(tau.mask.size)
    order = jnp.argsort(jnp.where(tau.mask > 0, jax.random.uniform(key, tau.mask.shape), 1.0 + steps))  # the rest stays behind
    return tau.reward[order]


def trajectories(
    environment: Environment | HostEnvironment, policy: Policy, horizon: int, keys: jax.Array, params: Params, suspect: Suspect
) -> Trajectory:
    """What a suspect reports as its trajectories, one for each of `keys`, leading axis B."""
    space = environment.action_space

    def draw(key: jax.Array, n: int) -> tuple[Any, jax.Array]:
        return policy.draw(key, n), jax.random.uniform(jax.random.fold_in(key, LIES), (n, space_size(space)))

    def act(noise: tuple[Any, jax.Array], params: Params, observation: jax.Array) -> jax.Array:
        own = policy.act(noise[0], params, observation)
        return jnp.where(suspect.attack == RANDOM_ACTION, random_action(space, noise[1]).astype(own.dtype), own)

    tau = batch.trajectories(environment, policy._replace(draw=draw, act=act), horizon, keys, params, suspect.constants)
    lies = jax.vmap(jax.random.fold_in, (0, None))(keys, LIES)
    reward = jnp.where(suspect.attack == SHUFFLED_REWARD, jax.vmap(shuffled)(lies, tau), tau.reward)
    return tau._replace(reward=jnp.where(suspect.attack == REWARD_FLIP, -reward, reward))

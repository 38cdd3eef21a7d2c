"""Trajectories of agents that may misreport them: attacks that act before a gradient is taken.

    reward-flip       reports -r_t for every reward r_t
    random-action     executes uniform actions and reports them as if the policy had drawn them
    shuffled-reward   reports the rewards of a trajectory in random order

An honest agent draws the same random numbers, and so the same trajectories, as in a federation without attackers.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.envs.base import Discrete, Environment, Space, space_size
from fedpg.envs.host import HostEnvironment
from fedpg.gradients import batch, rollout
from fedpg.gradients.rollout import Trajectory
from fedpg.policies.base import Policy
from fedpg.trees import Params

ATTACKS = ("reward-flip", "random-action", "shuffled-reward")
HONEST, REWARD_FLIP, RANDOM_ACTION, SHUFFLED_REWARD = range(4)
"""Values of `MarkedAgent.attack`."""
ATTACK_STREAM = 0x11E5
"""Folded into a key for the attack's own random numbers."""


class MarkedAgent(NamedTuple):
    """An agent with a mark that says how it misreports its trajectories.

    Attributes:
        constants: those of its environment.
        attack: 0 if it is honest, else the number of its attack in `ATTACKS`, from 1, (); floating, as constants are.
    """

    constants: Any
    attack: jax.Array


def random_action(space: Space, uniform: jax.Array) -> jax.Array:
    """A uniform element of the space, from one uniform number per entry; an unbounded side ends at 1."""
    if isinstance(space, Discrete):
        return jnp.minimum((uniform[0] * space.n).astype(jnp.int32), space.n - 1)
    low, high = max(space.low, -1.0), min(space.high, 1.0)
    return (low + (high - low) * uniform).reshape(space.shape)


def shuffled(key: jax.Array, tau: Trajectory) -> jax.Array:
    """The rewards of one trajectory in a random order of its executed steps, (H,)."""
    steps = jnp.arange(tau.mask.size)
    order = jnp.argsort(jnp.where(tau.mask > 0, jax.random.uniform(key, tau.mask.shape), 1.0 + steps))  # steps after the end stay last
    return tau.reward[order]


def sampler(environment: Environment | HostEnvironment, policy: Policy, horizon: int) -> Callable[..., Trajectory]:
    """(keys (B,), params, marked agent) -> what the agent reports as its trajectories, leading axis B: `batch.sampler` with attacks."""
    space = environment.action_space

    def uniforms(key: jax.Array, n: int) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(key, ATTACK_STREAM), (n, space_size(space)))

    def draw(key: jax.Array, n: int) -> tuple[Any, jax.Array]:
        return policy.draw(key, n), uniforms(key, n)

    def noise(environment: Environment, _: Policy, action_key: jax.Array, step_key: jax.Array, n: int) -> tuple[Any, Any]:
        own, steps = rollout.noise(environment, policy, action_key, step_key, n)
        return (own, uniforms(action_key, n)), steps

    def sample(acting: Policy) -> Callable[..., Trajectory]:
        if isinstance(environment, HostEnvironment):
            return batch.sampler(environment, acting, horizon)
        return jax.vmap(functools.partial(rollout.rollout, environment, acting, horizon, noise=noise), (0, None, None))

    def reported(keys: jax.Array, params: Params, agent: MarkedAgent) -> Trajectory:
        def act(noise: tuple[Any, jax.Array], params: Params, observation: jax.Array) -> jax.Array:
            own = policy.act(noise[0], params, observation)
            return jnp.where(agent.attack == RANDOM_ACTION, random_action(space, noise[1]).astype(own.dtype), own)

        tau = sample(policy._replace(draw=draw, act=act))(keys, params, agent.constants)
        shuffle_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, ATTACK_STREAM)
        reward = jnp.where(agent.attack == SHUFFLED_REWARD, jax.vmap(shuffled)(shuffle_keys, tau), tau.reward)
        return tau._replace(reward=jnp.where(agent.attack == REWARD_FLIP, -reward, reward))

    return reported

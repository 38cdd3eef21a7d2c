"""Rollouts: one trajectory of a policy in the environment of one agent, at most H steps, masked after its end."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.envs.base import Environment
from fedpg.policies.base import Policy
from fedpg.sampling import uniform_pairs, uniforms
from fedpg.trees import Params


class Trajectory(NamedTuple):
    """tau = (s_0, a_0, r_0, ...), padded to H steps."""

    observation: jax.Array  # (H, ...)
    action: jax.Array  # (H, ...)
    reward: jax.Array  # (H,), zero after the end
    mask: jax.Array  # (H,), 1 for executed steps, 0 after the end


def noise(environment: Environment, policy: Policy, action_key: jax.Array, step_key: jax.Array, horizon: int) -> tuple[Any, Any]:
    """The randomness of all actions and of all transitions, leading axis H; one stream for both where both are uniform numbers."""
    if policy.draw is uniforms and environment.draw is uniforms:
        return uniform_pairs(action_key, horizon)
    return policy.draw(action_key, horizon), environment.draw(step_key, horizon)


def rollout(
    environment: Environment, policy: Policy, horizon: int, key: jax.Array, params: Params, agent: Any, *, noise: Callable[..., Any] = noise
) -> Trajectory:
    """Samples tau ~ p_agent(. | params), with the randomness that `noise` draws."""
    start_key, action_key, step_key = jax.random.split(key, 3)
    state, observation = environment.reset(start_key, agent)

    def step(carry: tuple, now: tuple) -> tuple:
        state, observation, alive = carry
        action = policy.act(now[0], params, observation)
        after = environment.transition(now[1], state, action, agent)
        # An ended episode stands still: its state could otherwise diverge and make the masked sums NaN.
        state = trees.select(alive, after.state, state)
        row = Trajectory(observation, action, jnp.where(alive, after.reward, 0.0), alive.astype(after.reward.dtype))
        observation = jnp.where(alive, after.observation, observation)
        return (state, observation, alive & ~(after.terminated | after.truncated)), row

    drawn = noise(environment, policy, action_key, step_key, horizon)
    _, trajectory = jax.lax.scan(step, (state, observation, jnp.ones((), bool)), drawn)
    return trajectory


def log_probs(policy: Policy, params: Params, trajectory: Trajectory) -> jax.Array:
    """log pi(a_t|s_t) for every executed step, zero after the end. Shape (H,)."""
    values = jax.vmap(policy.log_prob, (None, 0, 0))(params, trajectory.observation, trajectory.action)
    return jnp.where(trajectory.mask > 0, values, 0.0)

"""J and grad J of a finite MDP without sampling, for finite and infinite horizon."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedpg.envs.tabular import MDP
from fedpg.policies.base import Policy
from fedpg.trees import Params


def log_table(policy: Policy, params: Params, states: int, actions: int) -> jax.Array:
    """log pi(a|s) for every state and action of a policy on discrete spaces, (S, A)."""
    log_probs = jax.vmap(jax.vmap(policy.log_prob, (None, None, 0)), (None, 0, None))
    return log_probs(params, jnp.arange(states), jnp.arange(actions))


def table(policy: Policy, params: Params, mdp: MDP) -> jax.Array:
    """pi(a|s), (S, A)."""
    return jnp.exp(log_table(policy, params, *mdp.reward.shape))


def value(mdp: MDP, probabilities: jax.Array, discount: float, horizon: int | None) -> jax.Array:
    """E[sum_h discount^h r_h] from the start distribution, (). `horizon=None` is the infinite sum (discount < 1)."""
    reward = jnp.sum(probabilities * mdp.reward, axis=1)
    kernel = jnp.einsum("sa,sat->st", probabilities, mdp.transition)
    if horizon is None:
        return mdp.start @ jnp.linalg.solve(jnp.eye(reward.shape[0]) - discount * kernel, reward)
    values, _ = jax.lax.scan(lambda v, _: (reward + discount * kernel @ v, None), jnp.zeros_like(reward), None, length=horizon)
    return mdp.start @ values


def objective(policy: Policy, params: Params, mdp: MDP, discount: float, horizon: int | None) -> jax.Array:
    """J_i(params), ()."""
    return value(mdp, table(policy, params, mdp), discount, horizon)


def gradient(policy: Policy, params: Params, mdp: MDP, discount: float, horizon: int | None) -> Params:
    """grad J_i(params), by differentiating the exact value."""
    return jax.grad(objective, 1)(policy, params, mdp, discount, horizon)

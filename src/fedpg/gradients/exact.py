"""J, grad J and the tables of a policy in a finite MDP, computed without sampling, for finite and infinite horizon."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.envs.tabular import MDP
from fedpg.policies.base import Policy
from fedpg.trees import Params


def logits(policy: Policy, params: Params, states: int, actions: int) -> jax.Array:
    """log pi(a|s) up to a constant in each state for every state and action of a policy on discrete spaces, (S, A)."""
    if policy.logits is not None:
        return policy.logits(params)
    log_probs = jax.vmap(jax.vmap(policy.log_prob, (None, None, 0)), (None, 0, None))
    return log_probs(params, jnp.arange(states), jnp.arange(actions))


def log_table(policy: Policy, params: Params, states: int, actions: int) -> jax.Array:
    """log pi(a|s) for every state and action of a policy on discrete spaces, (S, A)."""
    found = logits(policy, params, states, actions)
    return found if policy.logits is None else jax.nn.log_softmax(found)


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


class Tables(NamedTuple):
    """The tables of a policy in a finite MDP. With d_t the distribution of s_t and Q_t the value of the remaining H - t steps:

    Attributes:
        probabilities: pi(a|s), (S, A).
        occupancy: x(s) = sum_t gamma^t d_t(s), (S,); it adds up to 1/(1-gamma) without a horizon.
        values: Q(s,a) = sum_t gamma^t d_t(s) Q_t(s,a) / x(s), (S, A), so that dJ/dpi(a|s) = x(s) Q(s,a); without a horizon
            all Q_t are equal. 0 in states that are never visited within a horizon.
        advantages: Q(s,a) - tau log pi(a|s) less its mean over pi(.|s), (S, A).
    """

    probabilities: jax.Array
    occupancy: jax.Array
    values: jax.Array
    advantages: jax.Array


def tables(mdp: MDP, log_probabilities: jax.Array, discount: float, horizon: int | None, temperature: Any = 0.0) -> Tables:
    """The tables of a policy given by log pi, (S, A). With `temperature` tau those of sum_t gamma^t (r_t - tau log pi(a_t|s_t)).

    The entropy of the step itself is not in Q, as is usual: V(s) = sum_a pi(a|s) (Q(s,a) - tau log pi(a|s)).
    """
    pi = jnp.exp(log_probabilities)
    cost = temperature * log_probabilities
    paid = mdp._replace(reward=mdp.reward - cost)
    if horizon is None:
        kernel = jnp.einsum("sa,sat->st", pi, mdp.transition)
        left = jnp.eye(kernel.shape[0]) - discount * kernel
        occupancy = jnp.linalg.solve(left.T, mdp.start)
        after = jnp.linalg.solve(left, jnp.sum(pi * paid.reward, axis=1))
        values = paid.reward + discount * mdp.transition @ after
    else:
        # J is linear in the rewards, with slope x(s) pi(a|s); its slope in pi, rewards held, is x(s) Q(s,a).
        slopes = jax.grad(lambda pi, reward: value(mdp._replace(reward=reward), pi, discount, horizon), (0, 1))(pi, paid.reward)
        occupancy = jnp.sum(slopes[1], axis=1)
        values = slopes[0] / jnp.where(occupancy > 0, occupancy, 1.0)[:, None]
    return Tables(pi, occupancy, values + cost, values - jnp.sum(pi * values, axis=1, keepdims=True))


class Exact(NamedTuple):
    """Exact solutions, for a finite MDP and a policy that is a table."""

    table: str  # kind of the params, `Policy.table`
    solve: Callable[[Params, MDP, Any], Tables]  # (params, mdp, temperature) -> Tables


def exact(policy: Policy, discount: float, horizon: int | None) -> Exact | None:
    """The exact solutions of a policy; None unless it is a table."""

    def solve(params: Params, mdp: MDP, temperature: Any = 0.0) -> Tables:
        return tables(mdp, log_table(policy, params, *mdp.reward.shape), discount, horizon, temperature)

    return Exact(policy.table, solve) if policy.table else None

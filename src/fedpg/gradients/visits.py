"""g, F and Lambda of a finite MDP from visit counts: the estimator that keeps no trajectory.

With n[s,a] the visits of a trajectory and b a baseline of the state,

    C[s,a]            = sum_t 1{s_t=s, a_t=a} (G_t - gamma^t b(s))
    g(tau|th)         = grad_th sum_{s,a} C[s,a] log pi_th(a|s)                     C held
    log w(tau|th',th) = sum_{s,a} n[s,a] (log pi_th'(a|s) - log pi_th(a|s))

so a sample is two tables, whatever the horizon, and a gradient looks at S A cells instead of B H steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.envs.tabular import MDP, is_tabular
from fedpg.gradients import baselines, importance
from fedpg.gradients.baselines import Average
from fedpg.gradients.estimator import Choices, Estimator, Usage
from fedpg.gradients.exact import log_table
from fedpg.gradients.importance import Weights
from fedpg.gradients.surrogate import averaged, of_visits, table_divergence
from fedpg.gradients.walk import walk
from fedpg.policies.base import Policy
from fedpg.sampling import uniforms
from fedpg.trees import Params

BASELINES = ("none", "value")
"""Baselines that depend on nothing but the state."""
MOST_CELLS = 10
"""Tables of more cells than this many times a sample's steps are not worth it: log pi of every cell then costs more than of every step."""
MOST_STATES = 64
"""Nor are more states than this: `walk.all_at_once` looks at every state at every step."""


class Visits(NamedTuple):
    """What B trajectories leave behind.

    Attributes:
        count: n, (B, S, A).
        coefficient: C, (B, S, A).
        total_return: undiscounted, (B,).
    """

    count: jax.Array
    coefficient: jax.Array
    total_return: jax.Array


def applies(environment: Any, policy: Policy, choices: Choices) -> bool:
    """Whether visit counts suffice and pay: a small finite MDP, actions drawn by `pick`, nothing asked that depends on a visit's time."""
    suffice = (
        is_tabular(environment)
        and policy.draw is uniforms
        and choices.baseline in BASELINES
        and choices.weights not in importance.PREFIX_KINDS
        and not choices.normalise_advantages
        and not choices.watch_observations
    )
    if not suffice:
        return False
    states, actions = environment.observation_space.n, environment.action_space.n
    return states <= MOST_STATES and states * actions <= MOST_CELLS * choices.horizon * choices.batch_size


def _ascent(policy: Policy, params: Params, coefficient: jax.Array) -> Params:
    """The mean over the batch of grad sum_{s,a} coefficient[s,a] log pi(a|s); coefficients (B, S, A) are held."""
    mean = jnp.mean(coefficient, axis=0)
    return jax.grad(lambda at: jnp.sum(mean * log_table(policy, at, *mean.shape)))(params)


def gradient(policy: Policy, params: Params, drawn: Visits) -> Params:
    """Mean of g(tau | params)."""
    return _ascent(policy, params, drawn.coefficient)


def weighted_gradient(
    policy: Policy, params: Params, behaviour: Params, drawn: Visits, kind: str = "trajectory", cap: float = 2.0
) -> tuple[Params, Weights]:
    """Mean of F(params; tau, behaviour), differentiable in params through the weight as well as through g."""
    shape = drawn.count.shape
    moved = log_table(policy, params, *shape[1:]) - log_table(policy, behaviour, *shape[1:])
    ratios = (drawn.count * moved).reshape(shape[0], -1)
    w = jnp.exp(importance.log_weights(ratios, kind, cap))
    return _ascent(policy, params, w[:, None, None] * drawn.coefficient), importance.statistics(ratios)


def estimator(environment: Any, policy: Policy, choices: Choices) -> Estimator:
    """Samples are `Visits`; the memory is the baseline's state. For what `applies` to."""
    valued = choices.baseline == "value"
    fitted = baselines.make(choices.baseline, environment, choices.horizon)

    def sample(key: jax.Array, params: Params, mdp: MDP, memory: Average | tuple[()]) -> tuple[Visits, Average | tuple[()]]:
        keys = jax.random.split(key, choices.batch_size)
        each = jax.vmap(lambda k: walk(environment, policy, choices.horizon, choices.discount, valued, k, params, mdp))
        seen = each(keys)
        if not valued:
            return Visits(seen.visits, seen.returns, seen.total_return), memory
        coefficient = seen.returns - memory.mean()[:, None] * seen.discounts
        memory = memory.add(jnp.sum(seen.targets, axis=0), jnp.sum(seen.visits, axis=(0, 2)))
        return Visits(seen.visits, coefficient, seen.total_return), memory

    def moved(drawn: Visits, params: Params, behaviour: Params) -> jax.Array:
        """log pi_params - log pi_behaviour, (S, A)."""
        shape = drawn.count.shape[1:]
        return log_table(policy, params, *shape) - log_table(policy, behaviour, *shape)

    def usage(drawn: Visits) -> Usage:
        count = choices.batch_size
        return Usage(jnp.asarray(count), jnp.asarray(count * choices.horizon), jnp.sum(drawn.total_return))

    return Estimator(
        init_memory=fitted.init,
        sample=sample,
        gradient=lambda drawn, params: gradient(policy, params, drawn),
        weighted_gradient=lambda drawn, params, behaviour: weighted_gradient(
            policy, params, behaviour, drawn, choices.weights, choices.weight_cap
        ),
        usage=usage,
        surrogate=lambda drawn, params, behaviour: of_visits(moved(drawn, params, behaviour), drawn.coefficient, drawn.count),
        divergence=lambda drawn, params, other: averaged(
            table_divergence(*(log_table(policy, at, *drawn.count.shape[1:]) for at in (other, params))), jnp.sum(drawn.count, axis=(0, 2))
        ),
    )

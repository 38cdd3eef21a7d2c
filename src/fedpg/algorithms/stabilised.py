"""What FedSVRPG-S and FedHAPG-S share: momentum that looks back at the agent's own last path, and remembers it.

Of its last round agent i keeps the mean gradient m_i = 1/K sum_k g_i(tau|th_k) and the middle of its path
thbar_i = 1/K sum_k th_k. In a local step of round r it moves along

    D    = (1 - lambda_i) [ g - m_i ] + lambda_i Y          how far its gradient has moved since, measured in two ways
    u_rk = beta g + (1-beta) [ u_r + D ]
    th_{r,k+1} = th_rk + eta u_rk

Y is the algorithm's own measurement on the sample at hand, from thbar_i: g - w g(tau|thbar_i) for FedSVRPG-S, a Hessian-vector
product for FedHAPG-S. Its noise cancels near thbar_i and explodes far from it; that of g - m_i stays as it is. What is used:

    memory   lambda_i = 0: no second gradient, no importance weights
    sample   lambda_i = 1: the printed algorithm, but for where it looks back to
    blend    lambda_i = sum <X, X - Y> / sum |X - Y|^2 over earlier samples, X = g - m_i: the mix of least variance, in [0, 1]

An agent that remembers nothing (its first round) moves along g. The server is that of the printed algorithms. Derivation,
fixed point and ablation: docs/algorithms/fedsvrpg-s.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.errors import choose
from fedpg.gradients.importance import Weights
from fedpg.problem import Problem
from fedpg.trees import Params

FORGET = 0.5
"""What is kept, at the start of a round, of the sums behind lambda_i."""

LOOKBACKS = ("memory", "sample", "blend")

Change = Callable[[Any, Params, Params, Params], tuple[Params, Weights]]
"""(sample, g, th_rk, thbar_i) -> Y, and the importance weights it used."""


class Shared(NamedTuple):
    """Attributes:
    params: theta_r.
    direction: u_r.
    """

    params: Params
    direction: Params


class Fit(NamedTuple):
    """The decayed sums behind lambda_i, () each: <X, X - Y> and |X - Y|^2."""

    along: jax.Array
    apart: jax.Array


class AgentState(NamedTuple):
    """What an agent keeps to itself.

    Attributes:
        memory: its baseline.
        knows: 1 once it has taken part in a round, else 0, ().
        gradient: m_i.
        centre: thbar_i.
        fit: behind lambda_i.
    """

    memory: Any
    knows: jax.Array
    gradient: Params
    centre: Params
    fit: Fit


def inner(a: Params, b: Params) -> jax.Array:
    """<a, b>, ()."""
    return sum(jax.tree.leaves(jax.tree.map(jnp.vdot, a, b)), jnp.zeros(()))


def share_of(lookback: str, fit: Fit) -> Any:
    """lambda_i, (); when blending 0 until something was measured."""
    if lookback == "blend":
        return jnp.clip(fit.along / jnp.where(fit.apart > 0, fit.apart, 1.0), 0.0, 1.0)
    return float(lookback == "sample")


def stabilised(
    name: str, problem: Problem, change: Change, *, lookback: str, beta: Any, local_lr: Any, global_lr: Any, local_steps: int
) -> Algorithm:
    """The algorithm whose own measurement of the change since its last round is `change`."""
    choose("lookback", lookback, LOOKBACKS)
    global_lr = local_lr * local_steps if global_lr is None else global_lr
    base.check_step(local_lr, global_lr, local_steps, beta)

    def init(params: Params) -> tuple[ServerState, AgentState]:
        nothing, zero = trees.zeros_like(params), jnp.zeros(())
        return ServerState(Shared(params, nothing)), AgentState(problem.init_memory(), zero, nothing, nothing, Fit(zero, zero))

    def local_update(key: jax.Array, shared: Shared, state: AgentState, agent: Any) -> tuple[Params, AgentState, LocalInfo]:
        own = jnp.where(state.knows > 0, beta, 1.0)  # who remembers nothing yet moves along g
        share = share_of(lookback, state.fit)

        def direction(key: jax.Array, params: Params, carry: tuple) -> tuple[Params, tuple, LocalInfo]:
            memory, gradient, centre, fit = carry
            sample, memory = problem.sample(key, params, agent, memory)
            g = problem.gradient(sample, params)
            moved, weights = trees.subtract(g, state.gradient), base.no_weights()
            if lookback != "memory":
                measured, weights = change(sample, g, params, state.centre)
                apart = trees.subtract(moved, measured)
                fit = Fit(fit.along + state.knows * inner(moved, apart), fit.apart + state.knows * trees.norm_sq(apart))
                moved = trees.add_scaled(moved, -share, apart)
            u = jax.tree.map(lambda g, u_r, d: own * g + (1.0 - own) * (u_r + d), g, shared.direction, moved)
            part = 1.0 / local_steps
            carry = memory, trees.add_scaled(gradient, part, g), trees.add_scaled(centre, part, params), fit
            return u, carry, LocalInfo(problem.usage(sample), weights)

        nothing = trees.zeros_like(shared.params)
        carry = state.memory, nothing, nothing, trees.scale(FORGET, state.fit)
        params, carry, info = base.local_steps(problem, direction, key, shared.params, carry, local_steps, local_lr)
        memory, gradient, centre, fit = carry
        return trees.subtract(params, shared.params), AgentState(memory, jnp.ones(()), gradient, centre, fit), info

    def aggregate(state: ServerState, messages: Params, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(messages, weights, local_steps, local_lr)
        params = problem.project(trees.add_scaled(state.shared.params, global_lr, u))
        return ServerState(Shared(params, u)), info

    return Algorithm(name, init, local_update, aggregate)

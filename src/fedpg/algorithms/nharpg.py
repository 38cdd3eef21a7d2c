"""Federated N-HARPG: momentum carried along by Hessian-vector products of trajectories drawn where they are unbiased, and steps
of a given length. No importance weights. Fatkhullin et al., "Stochastic policy gradient methods: improved sample complexity for
Fisher-non-degenerate policies", ICML 2023, which is N = K = 1; the federated form is ours, after FedHAPG-M.

Agent i, local step k of round r, two batches; d_r is the direction all agents found in the last round, from theta_{r-1} on:

    q ~ U[0,1];   th^ = q th_rk + (1-q) theta_{r-1};   tau^ ~ p_i(.|th^);   tau ~ p_i(.|th_rk)
    d_rk = e g(tau|th_rk) + (1-e) [ d_r + Lambda(tau^|th^, th_rk - theta_{r-1}) ]
    th_{r,k+1} = th_rk + eta d_rk / |d_rk|
    sends the mean of its d_rk, and one number for the log
    server   d_{r+1} = the mean of those;   theta_{r+1} = theta_r + lambda d_{r+1} / |d_{r+1}|

Directions are averaged before they are normalised: a mean of unit vectors would estimate nothing. E d_rk, given th_rk, is
grad J_i(th_rk) + (1-e) [ d_r - grad J_i(theta_{r-1}) ], as in FedHAPG-M, whose one batch needs importance weights for that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.aggregation import mean
from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.errors import choose
from fedpg.problem import Problem
from fedpg.trees import Params

STEPS = ("normalised", "plain")
SCHEDULES = ("constant", "decaying")


class Shared(NamedTuple):
    """Attributes:
    params: theta_r.
    previous: theta_{r-1}; theta_0 in round 0.
    direction: d_r.
    round: r, ().
    """

    params: Params
    previous: Params
    direction: Params
    round: jax.Array


class Message(NamedTuple):
    """Attributes:
    direction: the mean of d_rk over the local steps.
    drift_sq: |th_rK - theta_r|^2, (), which does not follow from it where steps are normalised.
    """

    direction: Params
    drift_sq: jax.Array


def nharpg(
    problem: Problem,
    *,
    beta: Any = 0.2,
    local_lr: Any,
    global_lr: Any = None,
    local_steps: int = 1,
    u0_batches: int = 1,
    step: str = "normalised",
    schedule: str = "constant",
) -> Algorithm:
    """Federated N-HARPG on `problem`.

    Args:
        problem: what is learned.
        beta: e, in (0, 1]; not used where it decays.
        local_lr: eta, the length of a local step if normalised.
        global_lr: lambda, the length of the server's step if normalised; eta K if None.
        local_steps: K.
        u0_batches: batches per agent behind d_0; 0 starts from d_0 = 0.
        step: normalised (N-HARPG) or plain (HARPG), along d itself.
        schedule: constant, or decaying: e = 2/(r+2), and both steps are multiplied by 2/(r+2), as in the paper.
    """
    choose("step", step, STEPS)
    choose("schedule", schedule, SCHEDULES)
    global_lr = local_lr * local_steps if global_lr is None else global_lr
    base.check_step(local_lr, global_lr, local_steps, beta)

    def pace(shared: Shared) -> jax.Array:
        return 2.0 / (shared.round + 2.0) if schedule == "decaying" else jnp.ones(())

    def stretched(direction: Params) -> Params:
        """What is walked along; a direction of length 0 stays that."""
        length_sq = trees.norm_sq(direction)
        return direction if step == "plain" else trees.scale(jax.lax.rsqrt(jnp.where(length_sq > 0, length_sq, 1.0)), direction)

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params, params, trees.zeros_like(params), jnp.zeros(()))), problem.init_memory()

    def local_update(key: jax.Array, shared: Shared, memory: Any, agent: Any) -> tuple[Message, Any, LocalInfo]:
        gradient, own = base.plain_gradient(problem, agent), pace(shared) if schedule == "decaying" else beta

        def direction(key: jax.Array, params: Params, carry: tuple) -> tuple[Params, tuple, LocalInfo]:
            memory, found = carry
            mix_key, between_key, fresh_key = jax.random.split(key, 3)
            q = jax.random.uniform(mix_key)
            between = jax.tree.map(lambda old, new: q * new + (1.0 - q) * old, shared.previous, params)
            sample, memory = problem.sample(between_key, between, agent, memory)
            change = problem.hessian_vector(sample, between, trees.subtract(params, shared.previous))
            g, memory, info = gradient(fresh_key, params, memory)
            d = jax.tree.map(lambda g, d_r, hv: own * g + (1.0 - own) * (d_r + hv), g, shared.direction, change)
            both = base.total(trees.stack([info, LocalInfo(problem.usage(sample), base.no_weights())]))
            return trees.scale(pace(shared), stretched(d)), (memory, trees.add_scaled(found, 1.0 / local_steps, d)), both

        carry = memory, trees.zeros_like(shared.params)
        params, (memory, found), info = base.local_steps(problem, direction, key, shared.params, carry, local_steps, local_lr)
        return Message(found, trees.norm_sq(trees.subtract(params, shared.params))), memory, info

    def aggregate(state: ServerState, messages: Message, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
        shared, d = state.shared, mean(messages.direction, weights)
        params = problem.project(trees.add_scaled(shared.params, global_lr * pace(shared), stretched(d)))
        info = RoundInfo(trees.norm_sq(d), mean(messages.drift_sq, weights))
        return ServerState(Shared(params, shared.params, d, shared.round + 1.0)), info

    warmup = base.initial_direction(problem, u0_batches, lambda shared, d: shared._replace(direction=d))
    return Algorithm(
        "nharpg", init, local_update, aggregate, warmup, predicted=lambda shared: Message(base.like_params(shared), 0.0 * shared.round)
    )

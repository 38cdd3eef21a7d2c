"""Federated N-HARPG: momentum corrected by Hessian-vector products, and steps of a given length, without importance weights.

Two batches per local step; d_r is the direction all agents found in the last round, from theta_{r-1} on:

    agent    q ~ U[0,1];   th^ = q th_rk + (1-q) theta_{r-1};   tau^ ~ p_i(.|th^);   tau ~ p_i(.|th_rk)
             d_rk = e g(tau|th_rk) + (1-e) [ d_r + Lambda(tau^|th^, th_rk - theta_{r-1}) ]
             th_{r,k+1} = th_rk + eta d_rk / |d_rk|                              K times; sends the mean of its d_rk
    server   d_{r+1} = the mean of those;   theta_{r+1} = theta_r + lambda d_{r+1} / |d_{r+1}|

Directions are averaged before they are normalised: a mean of unit vectors would estimate nothing. E d_rk, given th_rk, is
grad J_i(th_rk) + (1-e) [ d_r - grad J_i(theta_{r-1}) ], as in FedHAPG-M, whose one batch needs importance weights for that.
Fatkhullin et al., "Stochastic policy gradient methods: improved sample complexity for Fisher-non-degenerate policies", ICML 2023, is
N = K = 1; the federated form is ours, after FedHAPG-M.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState
from fedpg.errors import choose


class Shared(NamedTuple):
    """What the server broadcasts: theta_r, theta_{r-1} (theta_0 in round 0), d_r and r, ()."""

    params: Params
    previous: Params
    direction: Params
    round: jax.Array


class Message(NamedTuple):
    """What an agent sends: the mean of its d_rk, and |th_rK - theta_r|^2 for the log, ()."""

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
        problem: what is learned; it must have Hessian-vector products.
        beta: e, in (0, 1]; not used where it decays.
        local_lr: eta; the length of a normalised step.
        global_lr: lambda, the server's step-size, or the length of its normalised step; eta K if None.
        local_steps: K.
        u0_batches: batches per agent behind d_0; 0 starts from d_0 = 0.
        step: normalised (N-HARPG) or plain (HARPG), along d itself.
        schedule: constant, or decaying: e = 2/(r+2), and both steps are multiplied by 2/(r+2), as in the paper.
    """
    choose("step", step, ("normalised", "plain"))
    decaying = choose("schedule", schedule, ("constant", "decaying")) == "decaying"
    global_lr = base.server_lr(local_lr, global_lr, local_steps, beta)
    base.require_parts("nharpg", problem, "hessian_vector")

    def pace(shared: Shared) -> jax.Array:
        return 2.0 / (shared.round + 2.0) if decaying else jnp.ones(())

    def normalised(d: Params) -> Params:
        """d / |d|, and 0 if d is 0; with the plain step d."""
        length_sq = trees.norm_sq(d)
        return d if step == "plain" else trees.scale(jax.lax.rsqrt(jnp.where(length_sq > 0, length_sq, 1.0)), d)

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params, params, trees.zeros_like(params), jnp.zeros(()))), problem.init_memory()

    def local_update(key: jax.Array, shared: Shared, memory: Any, agent: Any) -> tuple[Message, Any, LocalInfo]:
        e = pace(shared) if decaying else beta

        def local_step(carry: tuple, key: jax.Array) -> tuple[tuple, LocalInfo]:
            params, memory, mean_d = carry
            mix_key, between_key, fresh_key = jax.random.split(key, 3)
            q = jax.random.uniform(mix_key)
            between = jax.tree.map(lambda old, new: q * new + (1.0 - q) * old, shared.previous, params)
            sample, memory = problem.sample(between_key, between, agent, memory)
            change = problem.hessian_vector(sample, between, trees.subtract(params, shared.previous))
            g, memory, info = base.sample_gradient(problem, fresh_key, params, agent, memory)
            d = jax.tree.map(lambda g, d_r, change: e * g + (1.0 - e) * (d_r + change), g, shared.direction, change)
            params = base.ascend(problem, params, local_lr, trees.scale(pace(shared), normalised(d)))
            both = base.total(trees.stack([info, LocalInfo(problem.usage(sample), base.no_weights())]))
            return (params, memory, trees.add_scaled(mean_d, 1.0 / local_steps, d)), both

        start = (shared.params, memory, trees.zeros_like(shared.params))
        (params, memory, mean_d), infos = jax.lax.scan(local_step, start, jax.random.split(key, local_steps))
        return Message(mean_d, trees.norm_sq(trees.subtract(params, shared.params))), memory, base.total(infos)

    def aggregate(state: ServerState, messages: Message, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        shared, d = state.shared, base.mean(messages.direction, present)
        params = base.ascend(problem, shared.params, global_lr * pace(shared), normalised(d))
        info = RoundInfo(trees.norm_sq(d), base.mean(messages.drift_sq, present))
        return ServerState(Shared(params, shared.params, d, shared.round + 1.0)), info

    def predicted(shared: Shared) -> Message:
        return Message(base.like_params(shared), jnp.zeros_like(shared.round))

    return Algorithm("nharpg", init, local_update, aggregate, base.initial_direction(problem, u0_batches), predicted=predicted)

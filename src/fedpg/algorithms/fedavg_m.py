"""FedAvg-M: momentum without variance reduction.

    agent    u_rk = beta g_i(tau|th_rk) + (1-beta) u_r;   th_{r,k+1} = th_rk + eta u_rk      K times; sends Delta_i = th_rK - theta_r
    server   u_{r+1} = mean Delta_i / (eta K);            theta_{r+1} = theta_r + lambda u_{r+1}

In round 0, without u_r, agents move along g. Cheng et al., "Momentum benefits non-IID federated learning simply and provably", ICLR
2024, with policy gradients; the template from which FedSVRPG-M was made.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState
from fedpg.algorithms.pavg import pavg


class Shared(NamedTuple):
    """What the server broadcasts: theta_r and u_r, which is 0 in round 0."""

    params: Params
    direction: Params


def share_of_own(beta: Any, shared: Shared) -> jax.Array:
    """beta, or 1 while there is no direction, ()."""
    return jnp.where(trees.norm_sq(shared.direction) > 0, beta, 1.0)


def fedavg_m(problem: Problem, *, beta: Any = 0.2, local_lr: Any, global_lr: Any = None, local_steps: int = 1) -> Algorithm:
    """FedAvg-M on `problem`.

    Args:
        problem: what is learned.
        beta: in (0, 1]; 1 is PAvg, bit for bit.
        local_lr: eta, the step-size of a local step.
        global_lr: lambda, the step-size of the server; eta K if None.
        local_steps: K.
    """
    global_lr = base.server_lr(local_lr, global_lr, local_steps, beta)
    if base.is_known(beta) and beta == 1.0:
        return pavg(problem, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps)._replace(name="fedavg-m")

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params, trees.zeros_like(params))), problem.init_memory()

    def local_update(key: jax.Array, shared: Shared, memory: Any, agent: Any) -> tuple[Params, Any, LocalInfo]:
        own = share_of_own(beta, shared)

        def tilt(g: Params, params: Params) -> Params:
            return jax.tree.map(lambda g, u_r: own * g + (1.0 - own) * u_r, g, shared.direction)

        def local_step(carry: tuple[Params, Any], key: jax.Array) -> tuple[tuple[Params, Any], LocalInfo]:
            params, memory = carry
            moved, memory, info = base.sample_direction(problem, key, params, agent, memory, local_lr, tilt)
            return (base.ascend(problem, params, local_lr, moved.direction), memory), info

        (params, memory), infos = jax.lax.scan(local_step, (shared.params, memory), jax.random.split(key, local_steps))
        return trees.subtract(params, shared.params), memory, base.total(infos)

    def aggregate(state: ServerState, deltas: Params, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(deltas, present, local_steps, local_lr)
        return ServerState(Shared(base.ascend(problem, state.shared.params, global_lr, u), u)), info

    def predicted(shared: Shared) -> Params:
        return trees.scale(local_lr * local_steps * (1.0 - share_of_own(beta, shared)), shared.direction)

    return Algorithm("fedavg-m", init, local_update, aggregate, predicted=predicted)

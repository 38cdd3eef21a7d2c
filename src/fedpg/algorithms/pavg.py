"""PAvg: federated averaging of policy gradients.

    agent    th_{k+1} = th_k + eta g_i(tau|th_k)            K times; sends Delta_i = th_K - theta_r
    server   u_{r+1} = mean Delta_i / (eta K);   theta_{r+1} = theta_r + lambda u_{r+1}

With lambda = eta K, the default, theta_{r+1} is the mean of the agents' params. This is the sampled form of Jin et al., "Federated
reinforcement learning with environment heterogeneity", AISTATS 2022: the paper's baseline, FedSVRPG-M with beta = 1.
"""

from typing import Any, NamedTuple

import jax

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState


class Shared(NamedTuple):
    """What the server broadcasts: theta_r."""

    params: Params


def pavg(problem: Problem, *, local_lr: Any, global_lr: Any = None, local_steps: int = 1) -> Algorithm:
    """PAvg on `problem`.

    Args:
        problem: what is learned.
        local_lr: eta.
        global_lr: lambda; eta K if None.
        local_steps: K.
    """
    global_lr = base.server_lr(local_lr, global_lr, local_steps)

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params)), problem.init_memory()

    def local_update(key: jax.Array, shared: Shared, memory: Any, agent: Any) -> tuple[Params, Any, LocalInfo]:
        def local_step(carry: tuple[Params, Any], key: jax.Array) -> tuple[tuple[Params, Any], LocalInfo]:
            params, memory = carry
            moved, memory, info = base.sample_direction(problem, key, params, agent, memory, local_lr)
            return (base.ascend(problem, params, local_lr, moved.direction), memory), info

        (params, memory), infos = jax.lax.scan(local_step, (shared.params, memory), jax.random.split(key, local_steps))
        return trees.subtract(params, shared.params), memory, base.total(infos)

    def aggregate(state: ServerState, deltas: Params, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(deltas, present, local_steps, local_lr)
        return ServerState(Shared(base.ascend(problem, state.shared.params, global_lr, u))), info

    return Algorithm("pavg", init, local_update, aggregate)

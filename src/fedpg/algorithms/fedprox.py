"""FedProx-PG: PAvg with a penalty on the distance from the start of the round.

    agent    th_{k+1} = th_k + eta [ g_i(tau|th_k) - mu (th_k - theta_r) ]        K times; sends Delta_i = th_K - theta_r
    server   u_{r+1} = mean Delta_i / (eta K);   theta_{r+1} = theta_r + lambda u_{r+1}

Agents climb J_i(th) - mu/2 |th - theta_r|^2. mu = 0 is PAvg, bit for bit. Li et al., "Federated optimization in heterogeneous
networks", MLSys 2020, with policy gradients as the local solver.
"""

from typing import Any

import jax

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState
from fedpg.algorithms.pavg import Shared
from fedpg.errors import require


def fedprox(problem: Problem, *, local_lr: Any, global_lr: Any = None, local_steps: int = 1, mu: Any = 1.0) -> Algorithm:
    """FedProx-PG on `problem`.

    Args:
        problem: what is learned.
        local_lr: eta, the step-size of a local step.
        global_lr: lambda, the step-size of the server; eta K if None.
        local_steps: K.
        mu: the strength of the penalty, 0 or more. It shortens local paths where eta mu K is not small; above eta mu = 2 they diverge.
    """
    global_lr = base.server_lr(local_lr, global_lr, local_steps)
    require(not base.is_known(mu) or mu >= 0, f"mu must be 0 or more, not {mu}")

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params)), problem.init_memory()

    def local_update(key: jax.Array, shared: Shared, memory: Any, agent: Any) -> tuple[Params, Any, LocalInfo]:
        def tilt(g: Params, params: Params) -> Params:
            return jax.tree.map(lambda g, th, theta: g - mu * (th - theta), g, params, shared.params)

        def local_step(carry: tuple[Params, Any], key: jax.Array) -> tuple[tuple[Params, Any], LocalInfo]:
            params, memory = carry
            moved, memory, info = base.sample_direction(problem, key, params, agent, memory, local_lr, tilt)
            return (base.ascend(problem, params, local_lr, moved.direction), memory), info

        (params, memory), infos = jax.lax.scan(local_step, (shared.params, memory), jax.random.split(key, local_steps))
        return trees.subtract(params, shared.params), memory, base.total(infos)

    def aggregate(state: ServerState, deltas: Params, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(deltas, present, local_steps, local_lr)
        return ServerState(Shared(base.ascend(problem, state.shared.params, global_lr, u))), info

    return Algorithm("fedprox", init, local_update, aggregate)

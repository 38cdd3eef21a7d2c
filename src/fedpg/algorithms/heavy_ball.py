"""Heavy ball: momentum without the correction of FedSVRPG-M, which makes the effective step up to 1/beta times as long.

    agent    u_rk = g_i(tau|th_rk) + (1-beta) u_r;   th_{r,k+1} = th_rk + eta u_rk           K times; sends Delta_i = th_rK - theta_r
    server   u_{r+1} = mean Delta_i / (eta K);       theta_{r+1} = theta_r + lambda u_{r+1}

It is not in the paper's text, but Table 2 of the paper fits this and not the printed algorithm.
"""

from typing import Any

import jax

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState
from fedpg.algorithms.fedavg_m import Shared


def heavy_ball(
    problem: Problem, *, beta: Any = 0.2, local_lr: Any, global_lr: Any = None, local_steps: int = 1, u0_batches: int = 0
) -> Algorithm:
    """Heavy ball on `problem`.

    Args:
        problem: what is learned.
        beta: in (0, 1]; 1 is PAvg.
        local_lr: eta, the step-size of a local step.
        global_lr: lambda, the step-size of the server; eta K if None.
        local_steps: K.
        u0_batches: batches per agent behind u_0; 0 starts from u_0 = 0.
    """
    global_lr = base.server_lr(local_lr, global_lr, local_steps, beta)

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params, trees.zeros_like(params))), problem.init_memory()

    def local_update(key: jax.Array, shared: Shared, memory: Any, agent: Any) -> tuple[Params, Any, LocalInfo]:
        def tilt(g: Params, params: Params) -> Params:
            return trees.add_scaled(g, 1.0 - beta, shared.direction)

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
        return trees.scale(local_lr * local_steps * (1.0 - beta), shared.direction)

    warmup = base.initial_direction(problem, 0 if base.is_known(beta) and beta == 1.0 else u0_batches, local_lr)
    return Algorithm("heavy-ball", init, local_update, aggregate, warmup, predicted=predicted)

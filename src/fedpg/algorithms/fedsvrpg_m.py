"""FedSVRPG-M: Algorithm 1 of Wang et al., "Momentum for the Win", ICML 2024, as printed.

agent    tau ~ p_i(.|th_rk)
         u_rk = beta g(tau|th_rk) + (1-beta) [ u_r + g(tau|th_rk) - w(tau|theta_{r-1}, th_rk) g(tau|theta_{r-1}) ]
         th_{r,k+1} = th_rk + eta u_rk                                        K times; sends Delta_i = th_rK - theta_r
server   u_{r+1} = 1/(eta N K) sum_i Delta_i;   theta_{r+1} = theta_r + lambda u_{r+1}
start    theta_{-1} = theta_0;   u_0 = mean of g over B batches per agent
"""

from typing import Any, NamedTuple

import jax

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState
from fedpg.algorithms.pavg import pavg


class Shared(NamedTuple):
    """What the server broadcasts.

    Attributes:
        params: theta_r.
        previous: theta_{r-1}; theta_0 in round 0.
        direction: u_r.
    """

    params: Params
    previous: Params
    direction: Params


def fedsvrpg_m(
    problem: Problem, *, beta: Any = 0.2, local_lr: Any, global_lr: Any = None, local_steps: int = 1, u0_batches: int = 1
) -> Algorithm:
    """FedSVRPG-M on `problem`.

    Args:
        problem: what is learned; it must have importance-weighted gradients.
        beta: in (0, 1]; 1 is PAvg, bit for bit.
        local_lr: eta.
        global_lr: lambda; eta K if None.
        local_steps: K.
        u0_batches: B, batches per agent behind u_0; 0 starts from u_0 = 0.
    """
    if base.is_known(beta) and beta == 1.0:
        return pavg(problem, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps)._replace(name="fedsvrpg-m")
    global_lr = base.server_lr(local_lr, global_lr, local_steps, beta)
    base.require_parts("fedsvrpg-m", problem, "weighted_gradient")

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params, params, trees.zeros_like(params))), problem.init_memory()

    def local_update(key: jax.Array, shared: Shared, memory: Any, agent: Any) -> tuple[Params, Any, LocalInfo]:
        def local_step(carry: tuple[Params, Any], key: jax.Array) -> tuple[tuple[Params, Any], LocalInfo]:
            params, memory = carry
            sample, memory = problem.sample(key, params, agent, memory)
            g = problem.gradient(sample, params)
            w_g, weights = problem.weighted_gradient(sample, shared.previous, params)
            # beta g + (1-beta) (u_r + g - w g_previous), with the two g terms joined
            u = jax.tree.map(lambda g, u_r, w_g: g + (1.0 - beta) * (u_r - w_g), g, shared.direction, w_g)
            return (base.ascend(problem, params, local_lr, u), memory), LocalInfo(problem.usage(sample), weights)

        (params, memory), infos = jax.lax.scan(local_step, (shared.params, memory), jax.random.split(key, local_steps))
        return trees.subtract(params, shared.params), memory, base.total(infos)

    def aggregate(state: ServerState, deltas: Params, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(deltas, present, local_steps, local_lr)
        params = base.ascend(problem, state.shared.params, global_lr, u)
        return ServerState(Shared(params, state.shared.params, u)), info

    def predicted(shared: Shared) -> Params:
        return trees.scale(local_lr * local_steps * (1.0 - beta), shared.direction)

    return Algorithm("fedsvrpg-m", init, local_update, aggregate, base.initial_direction(problem, u0_batches), predicted=predicted)

"""FedHAPG-M: Algorithm 2 of Wang et al., "Momentum for the Win", ICML 2024, as printed.

agent    alpha ~ U[0,1];   th_a = alpha theta_{r-1} + (1-alpha) th_rk;   tau ~ p_i(.|th_a);   v = th_rk - theta_{r-1}
         Lambda = <grad log p(tau|th_a), v> g(tau|th_a) + grad <g(tau|th_a), v>
         u_rk = beta w(tau|th_rk, th_a) g(tau|th_rk) + (1-beta) [ u_r + Lambda ]
         th_{r,k+1} = th_rk + eta u_rk                                        K times; sends Delta_i = th_rK - theta_r
server   u_{r+1} = 1/(eta N K) sum_i Delta_i;   theta_{r+1} = theta_r + lambda u_{r+1}
start    theta_{-1} = theta_0;   u_0 = mean of g over B batches per agent
"""

from typing import Any

import jax

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState
from fedpg.algorithms.fedsvrpg_m import Shared


def fedhapg_m(
    problem: Problem, *, beta: Any = 0.2, local_lr: Any, global_lr: Any = None, local_steps: int = 1, u0_batches: int = 1
) -> Algorithm:
    """FedHAPG-M on `problem`.

    At beta = 1 it equals PAvg in expectation only: the printed algorithm still draws its trajectory at th_a and reweights it.

    Args:
        problem: what is learned; it must have importance-weighted gradients and Hessian-vector products.
        beta: in (0, 1].
        local_lr: eta.
        global_lr: lambda; eta K if None.
        local_steps: K.
        u0_batches: B, batches per agent behind u_0; 0 starts from u_0 = 0.
    """
    global_lr = base.server_lr(local_lr, global_lr, local_steps, beta)
    base.require_parts("fedhapg-m", problem, "weighted_gradient", "hessian_vector")

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params, params, trees.zeros_like(params))), problem.init_memory()

    def local_update(key: jax.Array, shared: Shared, memory: Any, agent: Any) -> tuple[Params, Any, LocalInfo]:
        def local_step(carry: tuple[Params, Any], key: jax.Array) -> tuple[tuple[Params, Any], LocalInfo]:
            params, memory = carry
            alpha_key, sample_key = jax.random.split(key)
            alpha = jax.random.uniform(alpha_key)
            between = jax.tree.map(lambda old, new: alpha * old + (1.0 - alpha) * new, shared.previous, params)
            sample, memory = problem.sample(sample_key, between, agent, memory)
            w_g, weights = problem.weighted_gradient(sample, params, between)
            change = problem.hessian_vector(sample, between, trees.subtract(params, shared.previous))
            u = jax.tree.map(lambda w_g, u_r, change: beta * w_g + (1.0 - beta) * (u_r + change), w_g, shared.direction, change)
            return (base.ascend(problem, params, local_lr, u), memory), LocalInfo(problem.usage(sample), weights)

        (params, memory), infos = jax.lax.scan(local_step, (shared.params, memory), jax.random.split(key, local_steps))
        return trees.subtract(params, shared.params), memory, base.total(infos)

    def aggregate(state: ServerState, deltas: Params, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(deltas, present, local_steps, local_lr)
        params = base.ascend(problem, state.shared.params, global_lr, u)
        return ServerState(Shared(params, state.shared.params, u)), info

    def predicted(shared: Shared) -> Params:
        return trees.scale(local_lr * local_steps * (1.0 - beta), shared.direction)

    warmup = base.initial_direction(problem, 0 if base.is_known(beta) and beta == 1.0 else u0_batches)
    return Algorithm("fedhapg-m", init, local_update, aggregate, warmup, predicted=predicted)

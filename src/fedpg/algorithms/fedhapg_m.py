"""FedHAPG-M: Algorithm 2 of Wang et al., "Momentum for the Win", ICML 2024, as printed.

alpha ~ U[0,1];   th_a = alpha theta_{r-1} + (1-alpha) th_rk;   tau ~ p_i(.|th_a);   v = th_rk - theta_{r-1}
Lambda = <grad log p(tau|th_a), v> g(tau|th_a) + grad <g(tau|th_a), v>
u_rk = beta w(tau|th_rk, th_a) g(tau|th_rk) + (1-beta) [ u_r + Lambda ]
th_{r,k+1} = th_rk + eta u_rk
"""

from __future__ import annotations

from typing import Any

import jax

from fedpg import trees
from fedpg.algorithms.base import Algorithm, Direction, LocalInfo
from fedpg.algorithms.momentum import Shared, momentum
from fedpg.problem import Problem
from fedpg.trees import Params


def fedhapg_m(
    problem: Problem, *, beta: Any = 0.2, local_lr: Any, global_lr: Any = None, local_steps: int = 1, u0_batches: int = 1
) -> Algorithm:
    """FedHAPG-M on `problem`; the arguments are those of `fedsvrpg_m`.

    At beta = 1 it is PAvg in expectation only: the printed algorithm still draws its trajectory at th_a and reweights it.
    """

    def direction(shared: Shared, agent: Any) -> Direction:
        def along(key: jax.Array, params: Params, memory: Any) -> tuple[Params, Any, LocalInfo]:
            alpha_key, sample_key = jax.random.split(key)
            alpha = jax.random.uniform(alpha_key)
            between = jax.tree.map(lambda old, new: alpha * old + (1.0 - alpha) * new, shared.previous, params)
            sample, memory = problem.sample(sample_key, between, agent, memory)
            fresh, weights = problem.weighted_gradient(sample, params, between)
            change = problem.hessian_vector(sample, between, trees.subtract(params, shared.previous))
            u = jax.tree.map(lambda wg, u_r, hv: beta * wg + (1.0 - beta) * (u_r + hv), fresh, shared.direction, change)
            return u, memory, LocalInfo(problem.usage(sample), weights)

        return along

    return momentum(
        "fedhapg-m", problem, direction,
        beta=beta, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps, u0_batches=u0_batches,
    )  # fmt: skip

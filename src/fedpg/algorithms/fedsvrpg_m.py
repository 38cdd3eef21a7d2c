"""FedSVRPG-M: Algorithm 1 of Wang et al., "Momentum for the Win", ICML 2024, as printed.

tau ~ p_i(.|th_rk)
u_rk = beta g(tau|th_rk) + (1-beta) [ u_r + g(tau|th_rk) - w(tau|theta_{r-1}, th_rk) g(tau|theta_{r-1}) ]
th_{r,k+1} = th_rk + eta u_rk
"""

from __future__ import annotations

from typing import Any

import jax

from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, Direction, LocalInfo
from fedpg.algorithms.momentum import Shared, momentum
from fedpg.problem import Problem
from fedpg.trees import Params


def fedsvrpg_m(
    problem: Problem, *, beta: Any = 0.2, local_lr: Any, global_lr: Any = None, local_steps: int = 1, u0_batches: int = 1
) -> Algorithm:
    """FedSVRPG-M on `problem`.

    Args:
        problem: what is learned.
        beta: in (0, 1]; 1 is PAvg, bit for bit.
        local_lr: eta.
        global_lr: lambda; eta K if None.
        local_steps: K.
        u0_batches: batches per agent behind u_0; 0 starts from u_0 = 0.
    """

    def direction(shared: Shared, agent: Any) -> Direction:
        if base.is_one(beta):
            return base.plain_gradient(problem, agent)

        def along(key: jax.Array, params: Params, memory: Any) -> tuple[Params, Any, LocalInfo]:
            sample, memory = problem.sample(key, params, agent, memory)
            g = problem.gradient(sample, params)
            anchor, weights = problem.weighted_gradient(sample, shared.previous, params)
            # beta g + (1-beta) (u_r + g - w g_prev), with the two g terms joined
            u = jax.tree.map(lambda g, u_r, wg: g + (1.0 - beta) * (u_r - wg), g, shared.direction, anchor)
            return u, memory, LocalInfo(problem.usage(sample), weights)

        return along

    return momentum(
        "fedsvrpg-m", problem, direction,
        beta=beta, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps, u0_batches=u0_batches,
    )  # fmt: skip

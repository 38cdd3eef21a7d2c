"""FedSVRPG-S: FedSVRPG-M made stable, what to use in practice. With the memory alone, the default:

    tau ~ p_i(.|th_rk)
    u_rk = g(tau|th_rk) + (1-beta) [ u_r - m_i ],     m_i = mean of agent i's own gradients in its last round
    th_{r,k+1} = th_rk + eta u_rk

For other ways to look back see `fedpg.algorithms.stabilised`.
"""

from __future__ import annotations

from typing import Any

from fedpg import trees
from fedpg.algorithms.base import Algorithm
from fedpg.algorithms.stabilised import stabilised
from fedpg.gradients.importance import Weights
from fedpg.problem import Problem
from fedpg.trees import Params


def fedsvrpg_s(
    problem: Problem, *, beta: Any = 0.2, local_lr: Any, global_lr: Any = None, local_steps: int = 1, lookback: str = "memory"
) -> Algorithm:
    """FedSVRPG-S on `problem`.

    Args:
        problem: what is learned.
        beta: in (0, 1]; 1 is PAvg, bit for bit. The bias of many local steps falls with beta^2.
        local_lr: eta.
        global_lr: lambda; eta K if None.
        local_steps: K.
        lookback: memory; sample (importance weights, from the middle of the last path); blend (of both).
    """

    def change(sample: Any, g: Params, params: Params, centre: Params) -> tuple[Params, Weights]:
        anchor, weights = problem.weighted_gradient(sample, centre, params)
        return trees.subtract(g, anchor), weights

    return stabilised(
        "fedsvrpg-s", problem, change,
        lookback=lookback, beta=beta, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps,
    )  # fmt: skip

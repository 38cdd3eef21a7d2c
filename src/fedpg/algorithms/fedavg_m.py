"""FedAvg-M: momentum without variance reduction. Cheng et al., "Momentum benefits non-IID federated learning simply and provably",
ICLR 2024, with policy gradients; the template from which FedSVRPG-M was made.

    agent    u_rk = beta g_i(tau|th_rk) + (1-beta) u_r;   th_{r,k+1} = th_rk + eta u_rk        K times; sends Delta_i
    server   u_{r+1} = mean Delta_i / (eta K);            theta_{r+1} = theta_r + lambda u_{r+1}

This is FedSVRPG-S with D = 0, kappa = 1, one plain round and no stretch, bit for bit, and is built as that: see
`fedpg.algorithms.stabilised`.
"""

from __future__ import annotations

from typing import Any

from fedpg.algorithms.base import Algorithm
from fedpg.algorithms.fedsvrpg_s import fedsvrpg_s
from fedpg.problem import Problem


def fedavg_m(problem: Problem, *, beta: Any = 0.2, local_lr: Any, global_lr: Any = None, local_steps: int = 1) -> Algorithm:
    """FedAvg-M on `problem`; the arguments are those of `fedsvrpg_s`. In round 0, without u_r, agents move along g."""
    printed = fedsvrpg_s(
        problem, beta=beta, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps,
        lookback="none", gain=1.0, stretch=1.0, plain_rounds=1,
    )  # fmt: skip
    return printed._replace(name="fedavg-m")

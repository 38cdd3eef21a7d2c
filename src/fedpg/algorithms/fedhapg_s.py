"""FedHAPG-S: FedHAPG-M made stable. One trajectory at th_rk, a Hessian-vector product, no importance weights.

    tau ~ p_i(.|th_rk);   Y = Lambda(tau|th_rk, th_rk - thbar_i)     an estimate of grad J_i(th_rk) - grad J_i(thbar_i)
    u_rk = beta g(tau|th_rk) + (1-beta) u_r + (1/kappa - beta) a_i Y
    th_{r,k+1} = th_rk + eta u_rk

The printed algorithm draws tau between the two ends, where Lambda is unbiased, and then needs weights for g. Here Lambda is
that of the near end, off by O(|th_rk - thbar_i|^2), and a_i says what it has been worth (`fedpg.algorithms.stabilised`).
"""

from __future__ import annotations

from typing import Any

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm
from fedpg.algorithms.stabilised import STRETCH, stabilised
from fedpg.gradients.importance import Weights
from fedpg.problem import Problem
from fedpg.trees import Params


def fedhapg_s(
    problem: Problem,
    *,
    beta: Any = 0.2,
    local_lr: Any,
    global_lr: Any = None,
    local_steps: int = 1,
    lookback: str = "auto",
    gain: Any = None,
    stretch: Any = STRETCH,
    plain_rounds: int | None = None,
    agreement: float = 0.0,
) -> Algorithm:
    """FedHAPG-S on `problem`; the arguments are those of `fedsvrpg_s`, except that `auto` is fitted.

    Where Lambda is worth nothing it is FedSVRPG-S, and with lookback none or memory it is so anyway.
    """

    def change(sample: Any, g: Params, params: Params, centre: Params) -> tuple[Params, Weights]:
        return problem.hessian_vector(sample, params, trees.subtract(params, centre)), base.no_weights()

    return stabilised(
        "fedhapg-s", problem, change,
        beta=beta, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps,
        lookback="fitted" if lookback == "auto" else lookback, gain=gain, stretch=stretch, plain_rounds=plain_rounds, agreement=agreement,
    )  # fmt: skip

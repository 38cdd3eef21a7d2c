"""FedHAPG-S: FedHAPG-M made stable. One trajectory at th_rk, a Hessian-vector product, no importance weights.

    tau ~ p_i(.|th_rk);   Y = Lambda(tau|th_rk, th_rk - thbar_i)     an estimate of grad J_i(th_rk) - grad J_i(thbar_i)
    u_rk = beta g(tau|th_rk) + (1-beta) [ u_r + a_i Y ]
    th_{r,k+1} = th_rk + eta u_rk

The printed algorithm draws tau between the two ends, where Lambda is unbiased, and then needs weights for g. Here Lambda is
that of the near end, off by O(|th_rk - thbar_i|^2), and a_i says what it has been worth (`fedpg.algorithms.stabilised`).
"""

from __future__ import annotations

from typing import Any

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm
from fedpg.algorithms.stabilised import few_steps_gain, stabilised
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
    stretch: Any = 1.0,
) -> Algorithm:
    """FedHAPG-S on `problem`; the arguments are those of `fedsvrpg_s`, except that `auto` is fitted, `stretch` 1, and `gain`
    2 for K > 1: with fitted look back the faster server of FedSVRPG-S diverged on quadratics at beta = 0.03.

    With lookback none or memory, and the same gain and stretch, the two are the same.
    """

    def change(sample: Any, g: Params, params: Params, centre: Params) -> tuple[Params, Weights]:
        return problem.hessian_vector(sample, params, trees.subtract(params, centre)), base.no_weights()

    lookback = "fitted" if lookback == "auto" else lookback
    gain = (few_steps_gain(beta, 1) if local_steps == 1 else 2.0) if gain is None else gain
    return stabilised(
        "fedhapg-s", problem, change,
        lookback=lookback, gain=gain, stretch=stretch, beta=beta, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps,
    )  # fmt: skip

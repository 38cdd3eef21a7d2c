"""FedSVRPG-S: FedSVRPG-M made stable, what to use in practice. By default, with D = 0:

    tau ~ p_i(.|th_rk)
    u_rk = beta g(tau|th_rk) + (1-beta) u_r
    th_{r,k+1} = th_rk + eta u_rk

No second gradient, no importance weights, nothing kept by the agents. For the rest see `fedpg.algorithms.stabilised`.
"""

from __future__ import annotations

from typing import Any

from fedpg import trees
from fedpg.algorithms.base import Algorithm
from fedpg.algorithms.stabilised import STRETCH, stabilised
from fedpg.gradients.importance import Weights
from fedpg.problem import Problem
from fedpg.trees import Params


def fedsvrpg_s(
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
    """FedSVRPG-S on `problem`.

    Args:
        problem: what is learned.
        beta: in (0, 1]; 1 is PAvg, bit for bit. Noise and drift of local paths fall with beta, the bias they cause with beta^2.
        local_lr: eta.
        global_lr: lambda; eta K if None.
        local_steps: K.
        lookback: where D comes from: none (auto), memory, sample (importance weights), fitted.
        gain: kappa; if None max(2, 4/(beta K)), and 1, the printed server, for memory and sample, whose u_r does not lag.
        stretch: sigma, how much longer the server steps than lambda.
        plain_rounds: how many rounds at the start are PAvg's. The first always is; if None those of the first 128 local steps, at
            most 4, and 1 for memory and sample.
        agreement: how much longer still the server steps where the round's mean gradient points along u_r: times the cosine.
    """

    def change(sample: Any, g: Params, params: Params, centre: Params) -> tuple[Params, Weights]:
        anchor, weights = problem.weighted_gradient(sample, centre, params)
        return trees.subtract(g, anchor), weights

    return stabilised(
        "fedsvrpg-s", problem, change,
        beta=beta, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps,
        lookback="none" if lookback == "auto" else lookback, gain=gain, stretch=stretch, plain_rounds=plain_rounds, agreement=agreement,
    )  # fmt: skip

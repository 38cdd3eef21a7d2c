"""Heavy ball: momentum without the correction of FedSVRPG-M, a larger effective step (up to 1/beta).

    u_rk = g(tau|th_rk) + (1-beta) u_r;   th_{r,k+1} = th_rk + eta u_rk

Not in the paper's text, but its Table 2 fits this and not the printed algorithm.
"""

from __future__ import annotations

from typing import Any

import jax

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, Direction, LocalInfo
from fedpg.algorithms.momentum import Shared, momentum
from fedpg.problem import Problem
from fedpg.trees import Params


def heavy_ball(
    problem: Problem, *, beta: Any = 0.2, local_lr: Any, global_lr: Any = None, local_steps: int = 1, u0_batches: int = 0
) -> Algorithm:
    """Heavy ball on `problem`; the arguments are those of `fedsvrpg_m`, and u_0 = 0 by default."""

    def direction(shared: Shared, agent: Any) -> Direction:
        gradient = base.plain_gradient(problem, agent)

        def along(key: jax.Array, params: Params, memory: Any) -> tuple[Params, Any, LocalInfo]:
            g, memory, info = gradient(key, params, memory)
            return trees.add_scaled(g, 1.0 - beta, shared.direction), memory, info

        return along

    return momentum(
        "heavy-ball", problem, direction,
        beta=beta, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps, u0_batches=u0_batches, anchored=False,
    )  # fmt: skip

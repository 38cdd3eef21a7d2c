"""FedProx-PG: PAvg whose agents are held near the round's start by a spring. Li et al., "Federated optimization in heterogeneous
networks", MLSys 2020, with policy gradients for its local solver.

    agent    th_{k+1} = th_k + eta [ g_i(tau|th_k) - mu (th_k - theta_r) ]        K times; sends Delta_i = th_K - theta_r
    server   theta_{r+1} = theta_r + lambda / (eta K) mean Delta_i

So agents climb J_i(th) - mu/2 |th - theta_r|^2. mu = 0 is PAvg, bit for bit.
"""

from __future__ import annotations

from typing import Any

import jax

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo
from fedpg.algorithms.pavg import Shared, pavg
from fedpg.errors import require
from fedpg.problem import Problem
from fedpg.trees import Params


def fedprox(problem: Problem, *, local_lr: Any, global_lr: Any = None, local_steps: int = 1, mu: Any = 1.0) -> Algorithm:
    """FedProx-PG on `problem`.

    Args:
        problem: what is learned.
        local_lr: eta.
        global_lr: lambda; eta K if None.
        local_steps: K.
        mu: how stiff the spring is, 0 or more. It shortens local paths where eta mu K is not small, and with eta mu > 2 they diverge.
    """
    require(not isinstance(mu, (int, float)) or mu >= 0, f"mu must be 0 or more, not {mu}")
    plain = pavg(problem, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps)

    def local_update(key: jax.Array, shared: Shared, memory: Any, agent: Any) -> tuple[Params, Any, LocalInfo]:
        gradient = base.plain_gradient(problem, agent)

        def direction(key: jax.Array, params: Params, memory: Any) -> tuple[Params, Any, LocalInfo]:
            g, memory, info = gradient(key, params, memory)
            return jax.tree.map(lambda g, th, start: g - mu * (th - start), g, params, shared.params), memory, info

        params, memory, info = base.local_steps(problem, direction, key, shared.params, memory, local_steps, local_lr)
        return trees.subtract(params, shared.params), memory, info

    return plain._replace(name="fedprox", local_update=local_update)

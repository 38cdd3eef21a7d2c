"""PAvg: federated averaging of policy gradients. Jin et al., "Federated reinforcement learning with environment
heterogeneity", AISTATS 2022; the sampled form, which is the paper's baseline (beta = 1).

    agent    th_{k+1} = th_k + eta g_i(tau|th_k)            K times; sends Delta_i = th_K - theta_r
    server   u_{r+1} = mean Delta_i / (eta K);   theta_{r+1} = theta_r + lambda u_{r+1}

With lambda = eta K, the default, theta_{r+1} is the mean of the agents' params.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.problem import Problem
from fedpg.trees import Params


class Shared(NamedTuple):
    """Attributes:
    params: theta_r.
    """

    params: Params


def pavg(problem: Problem, *, local_lr: Any, global_lr: Any = None, local_steps: int = 1) -> Algorithm:
    """PAvg on `problem`; `global_lr` defaults to local_lr * local_steps."""
    global_lr = local_lr * local_steps if global_lr is None else global_lr
    base.check_step(local_lr, global_lr, local_steps)

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params)), problem.init_memory()

    def local_update(key: jax.Array, shared: Shared, memory: Any, agent: Any) -> tuple[Params, Any, LocalInfo]:
        direction = base.plain_gradient(problem, agent)
        params, memory, info = base.local_steps(problem, direction, key, shared.params, memory, local_steps, local_lr)
        return trees.subtract(params, shared.params), memory, info

    def aggregate(state: ServerState, messages: Params, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(messages, weights, local_steps, local_lr)
        params = problem.project(trees.add_scaled(state.shared.params, global_lr, u))
        return ServerState(Shared(params)), info

    return Algorithm("pavg", init, local_update, aggregate)

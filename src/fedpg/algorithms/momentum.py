"""What FedSVRPG-M, FedHAPG-M and heavy ball share: the state (theta_r, theta_{r-1}, u_r) and the server half.

server   u_{r+1} = 1/(eta N K) sum_i Delta_i;   theta_{r+1} = theta_r + lambda u_{r+1}
"""

from __future__ import annotations

from collections.abc import Callable
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
    previous: theta_{r-1}; theta_0 in round 0.
    direction: u_r.
    """

    params: Params
    previous: Params
    direction: Params


def momentum(
    name: str,
    problem: Problem,
    direction: Callable[[Shared, Any], base.Direction],
    *,
    beta: Any,
    local_lr: Any,
    global_lr: Any,
    local_steps: int,
    u0_batches: int,
    anchored: bool = True,
) -> Algorithm:
    """An algorithm whose agents move along direction(shared, agent) and whose server remembers the last step.

    With beta known to be 1 no u_0 is sampled: it would be multiplied by 0. `anchored` directions look back at theta_{r-1};
    for others it is not sent.
    """
    global_lr = local_lr * local_steps if global_lr is None else global_lr
    base.check_step(local_lr, global_lr, local_steps, beta)

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params, params if anchored else (), trees.zeros_like(params))), problem.init_memory()

    def local_update(key: jax.Array, shared: Shared, memory: Any, agent: Any) -> tuple[Params, Any, LocalInfo]:
        along = direction(shared, agent)
        params, memory, info = base.local_steps(problem, along, key, shared.params, memory, local_steps, local_lr)
        return trees.subtract(params, shared.params), memory, info

    def aggregate(state: ServerState, messages: Params, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(messages, weights, local_steps, local_lr)
        params = problem.project(trees.add_scaled(state.shared.params, global_lr, u))
        return ServerState(Shared(params, state.shared.params if anchored else (), u)), info

    warmup = base.initial_direction(problem, 0 if base.is_one(beta) else u0_batches, lambda shared, u: shared._replace(direction=u))

    def message(shared: Shared) -> Params:
        return trees.scale(local_lr * local_steps * (1.0 - beta), shared.direction)

    return Algorithm(name, init, local_update, aggregate, warmup, predicted=message)

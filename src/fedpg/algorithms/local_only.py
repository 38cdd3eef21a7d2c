"""Local only: every agent learns by itself; nothing is ever sent. What federation has to beat.

th_i <- th_i + eta g_i(tau|th_i)            K times a round
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.problem import Problem
from fedpg.trees import Params


class AgentState(NamedTuple):
    """Attributes:
    params: th_i.
    memory: the agent's baseline.
    """

    params: Params
    memory: Any


def local_only(problem: Problem, *, local_lr: Any, local_steps: int = 1) -> Algorithm:
    """Independent policy gradient for every agent of `problem`."""
    base.check_step(local_lr, 1.0, local_steps)

    def init(params: Params) -> tuple[ServerState, AgentState]:
        return ServerState(()), AgentState(params, problem.init_memory())

    def local_update(key: jax.Array, shared: tuple, state: AgentState, agent: Any) -> tuple[tuple, AgentState, LocalInfo]:
        direction = base.plain_gradient(problem, agent)
        params, memory, info = base.local_steps(problem, direction, key, state.params, state.memory, local_steps, local_lr)
        return (), AgentState(params, memory), info

    def aggregate(state: ServerState, messages: tuple, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
        return state, RoundInfo(jnp.zeros(()), jnp.zeros(()))

    return Algorithm(
        "local-only", init, local_update, aggregate, deployed=lambda shared, state: state.params, personal=True, predicted=lambda shared: ()
    )

"""Local only: every agent learns by itself and sends nothing. A federation should do better.

agent    th_i <- th_i + eta g_i(tau|th_i)            K times a round
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState


class AgentState(NamedTuple):
    """What an agent keeps: th_i and its baseline."""

    params: Params
    memory: Any


def local_only(problem: Problem, *, local_lr: Any, local_steps: int = 1) -> Algorithm:
    """Independent policy gradient for every agent.

    Args:
        problem: what is learned.
        local_lr: eta, the step-size of a local step.
        local_steps: K.
    """
    base.server_lr(local_lr, None, local_steps)

    def init(params: Params) -> tuple[ServerState, AgentState]:
        return ServerState(()), AgentState(params, problem.init_memory())

    def local_update(key: jax.Array, shared: tuple[()], state: AgentState, agent: Any) -> tuple[tuple[()], AgentState, LocalInfo]:
        def local_step(state: AgentState, key: jax.Array) -> tuple[AgentState, LocalInfo]:
            moved, memory, info = base.sample_direction(problem, key, state.params, agent, state.memory, local_lr)
            return AgentState(base.ascend(problem, state.params, local_lr, moved.direction), memory), info

        state, infos = jax.lax.scan(local_step, state, jax.random.split(key, local_steps))
        return (), state, base.total(infos)

    def aggregate(state: ServerState, messages: tuple[()], present: jax.Array) -> tuple[ServerState, RoundInfo]:
        return state, RoundInfo(jnp.zeros(()), jnp.zeros(()))

    return Algorithm(
        "local-only", init, local_update, aggregate, deployed=lambda shared, state: state.params, personal=True, predicted=lambda shared: ()
    )

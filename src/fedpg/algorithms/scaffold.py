"""SCAFFOLD-PG: every agent subtracts its own drift, which it remembers, and adds everybody's. Karimireddy et al., "SCAFFOLD:
stochastic controlled averaging for federated learning", ICML 2020, with policy gradients.

    agent    th_{k+1} = th_k + eta [ g_i(tau|th_k) + c - c_i ]          K times;   Delta_i = th_K - theta_r
             c_i+ = c_i - c + Delta_i / (eta K)                         option II, `path`: the mean of its gradients along its path
             c_i+ = g_i(tau|theta_r), a fresh batch                     option I, `start`
             sends (Delta_i, c_i+ - c_i)
    server   theta_{r+1} = theta_r + lambda / (eta K) mean Delta_i;     c += |S|/N mean (c_i+ - c_i)        over the agents S present

c is the mean of all N agents' c_i at any time, whoever was absent. All variates start at 0, so round 0 is PAvg.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.aggregation import mean
from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.errors import choose
from fedpg.problem import Problem
from fedpg.trees import Params

VARIATES = ("path", "start")


class Shared(NamedTuple):
    """Attributes:
    params: theta_r.
    variate: c.
    """

    params: Params
    variate: Params


class AgentState(NamedTuple):
    """Attributes:
    memory: the agent's baseline.
    variate: c_i.
    """

    memory: Any
    variate: Params


class Message(NamedTuple):
    """Attributes:
    delta: Delta_i.
    change: c_i+ - c_i.
    """

    delta: Params
    change: Params


def scaffold(problem: Problem, *, local_lr: Any, global_lr: Any = None, local_steps: int = 1, variate: str = "path") -> Algorithm:
    """SCAFFOLD-PG on `problem`.

    Args:
        problem: what is learned.
        local_lr: eta.
        global_lr: lambda; eta K if None.
        local_steps: K.
        variate: where c_i comes from: path (option II of the paper) or start (option I, one batch more per round).
    """
    choose("variate", variate, VARIATES)
    global_lr = local_lr * local_steps if global_lr is None else global_lr
    base.check_step(local_lr, global_lr, local_steps)

    def init(params: Params) -> tuple[ServerState, AgentState]:
        nothing = trees.zeros_like(params)
        return ServerState(Shared(params, nothing)), AgentState(problem.init_memory(), nothing)

    def local_update(key: jax.Array, shared: Shared, state: AgentState, agent: Any) -> tuple[Message, AgentState, LocalInfo]:
        gradient = base.plain_gradient(problem, agent)
        correction = trees.subtract(shared.variate, state.variate)  # in this order: exactly 0 where the two are equal

        def direction(key: jax.Array, params: Params, memory: Any) -> tuple[Params, Any, LocalInfo]:
            g, memory, info = gradient(key, params, memory)
            return trees.add_scaled(g, 1.0, correction), memory, info

        params, memory, info = base.local_steps(problem, direction, key, shared.params, state.memory, local_steps, local_lr)
        delta = trees.subtract(params, shared.params)
        if variate == "path":
            renewed = trees.add_scaled(trees.scale(-1.0, correction), 1.0 / (local_lr * local_steps), delta)
        else:  # folding in K gives a key that is none of the local steps', which are the same as folding in 0 .. K-1
            renewed, memory, more = gradient(jax.random.fold_in(key, local_steps), shared.params, memory)
            info = base.total(trees.stack([info, more]))
        return Message(delta, trees.subtract(renewed, state.variate)), AgentState(memory, renewed), info

    def aggregate(state: ServerState, messages: Message, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(messages.delta, weights, local_steps, local_lr)
        params = problem.project(trees.add_scaled(state.shared.params, global_lr, u))
        present = jnp.mean(weights > 0, dtype=weights.dtype)
        return ServerState(Shared(params, trees.add_scaled(state.shared.variate, present, mean(messages.change, weights)))), info

    return Algorithm("scaffold", init, local_update, aggregate, predicted=lambda shared: Message(*[base.like_params(shared)] * 2))

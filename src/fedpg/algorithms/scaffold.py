"""SCAFFOLD-PG: every agent replaces the mean of its own gradients, a control variate, by the mean of all agents'.

    agent    th_{k+1} = th_k + eta [ g_i(tau|th_k) + c - c_i ]          K times;   Delta_i = th_K - theta_r
             c_i+ = c_i - c + Delta_i / (eta K)                         option II, `path`: the mean of its gradients along its path
             c_i+ = g_i(tau|theta_r), a fresh batch                     option I, `start`
             sends (Delta_i, c_i+ - c_i)
    server   theta_{r+1} = theta_r + lambda / (eta K) mean Delta_i;     c += |S|/N mean (c_i+ - c_i)        over the agents S present

c is always the mean of all N agents' c_i, whichever were absent. All control variates start at 0, so round 0 is PAvg. Karimireddy
et al., "SCAFFOLD: stochastic controlled averaging for federated learning", ICML 2020, with policy gradients.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState
from fedpg.errors import choose


class Shared(NamedTuple):
    """What the server broadcasts: theta_r and c."""

    params: Params
    variate: Params


class AgentState(NamedTuple):
    """What an agent keeps: its baseline and c_i."""

    memory: Any
    variate: Params


class Message(NamedTuple):
    """What an agent sends: Delta_i and c_i+ - c_i."""

    delta: Params
    change: Params


def scaffold(problem: Problem, *, local_lr: Any, global_lr: Any = None, local_steps: int = 1, variate: str = "path") -> Algorithm:
    """SCAFFOLD-PG on `problem`.

    Args:
        problem: what is learned.
        local_lr: eta, the step-size of a local step.
        global_lr: lambda, the step-size of the server; eta K if None.
        local_steps: K.
        variate: where c_i comes from: path (option II of the paper) or start (option I, one batch more per round).
    """
    choose("variate", variate, ("path", "start"))
    global_lr = base.server_lr(local_lr, global_lr, local_steps)

    def init(params: Params) -> tuple[ServerState, AgentState]:
        zero = trees.zeros_like(params)
        return ServerState(Shared(params, zero)), AgentState(problem.init_memory(), zero)

    def local_update(key: jax.Array, shared: Shared, state: AgentState, agent: Any) -> tuple[Message, AgentState, LocalInfo]:
        correction = trees.subtract(shared.variate, state.variate)  # exactly 0 where the two are equal

        def tilt(g: Params, params: Params) -> Params:
            return trees.add_scaled(g, 1.0, correction)

        def local_step(carry: tuple[Params, Any], key: jax.Array) -> tuple[tuple[Params, Any], LocalInfo]:
            params, memory = carry
            moved, memory, info = base.sample_direction(problem, key, params, agent, memory, local_lr, tilt)
            return (base.ascend(problem, params, local_lr, moved.direction), memory), info

        (params, memory), infos = jax.lax.scan(local_step, (shared.params, state.memory), jax.random.split(key, local_steps))
        delta, info = trees.subtract(params, shared.params), base.total(infos)
        if variate == "path":
            renewed = trees.add_scaled(trees.scale(-1.0, correction), 1.0 / (local_lr * local_steps), delta)
        else:  # the keys of the local steps equal fold_in(key, 0 .. K-1), so fold_in(key, K) is a fresh one
            fresh = jax.random.fold_in(key, local_steps)
            at_start, memory, more = base.sample_direction(problem, fresh, shared.params, agent, memory, local_lr)
            renewed = at_start.own
            info = base.total(trees.stack([info, more]))
        return Message(delta, trees.subtract(renewed, state.variate)), AgentState(memory, renewed), info

    def aggregate(state: ServerState, messages: Message, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(messages.delta, present, local_steps, local_lr)
        params = base.ascend(problem, state.shared.params, global_lr, u)
        share = jnp.mean(present > 0, dtype=present.dtype)
        return ServerState(Shared(params, trees.add_scaled(state.shared.variate, share, base.mean(messages.change, present)))), info

    return Algorithm("scaffold", init, local_update, aggregate, predicted=lambda shared: Message(*[base.like_params(shared)] * 2))

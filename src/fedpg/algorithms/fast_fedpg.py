"""Fast-FedPG: agents first agree on the common gradient of the round, then correct their own by it. Zhu, Heath, Mitra, "Towards fast
rates for federated and multi-task reinforcement learning", 2024. Two exchanges a round.

    first    agent    g_i = g_i(tau|theta_r), a batch of its own;  sends and keeps it          server    G = mean g_i
    second   agent    th_{k+1} = th_k + eta u_k,   u_k as below, K times;  sends Delta_i = th_K - theta_r
             server   theta_{r+1} = theta_r + lambda / (eta K) mean Delta_i

The paper's u is `stored`. The others measure the change since theta_r on the sample at hand instead; with N = 1, where `stored`
is plain policy gradient, they are well-known algorithms (F and Lambda: docs/algorithms/README.md):

    stored      u_k = g_i(tau|th_k) + G - g_i
    sample      u_k = g_i(tau|th_k) - F_i(theta_r; tau, th_k) + G                    SVRPG
    recursive   u_k = g_i(tau|th_k) - F_i(th_{k-1}; tau, th_k) + u_{k-1}             SRVR-PG
    hessian     u_k = Lambda_i(tau|th_a, th_k - th_{k-1}) + u_{k-1},  th_a between   HAPG

with u_{-1} = G and th_{-1} = theta_r. Where gradients are exact all four have E u = G + grad J_i(th_k) - grad J_i(theta_r), and
rest exactly where grad J = 0, however different the agents are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, Exchange, LocalInfo, RoundInfo, ServerState
from fedpg.errors import choose, require
from fedpg.problem import Problem
from fedpg.trees import Params

CORRECTIONS = ("stored", "sample", "recursive", "hessian")


class Shared(NamedTuple):
    """Attributes:
    params: theta_r.
    direction: G.
    """

    params: Params
    direction: Params


class AgentState(NamedTuple):
    """Attributes:
    memory: the agent's baseline.
    gradient: g_i, from the first exchange to the second.
    """

    memory: Any
    gradient: Params


class Carry(NamedTuple):
    """What one local step hands to the next: the agent's baseline, th_{k-1} and u_{k-1}."""

    memory: Any
    previous: Params
    latest: Params


def fast_fedpg(
    problem: Problem,
    *,
    local_lr: Any,
    global_lr: Any = None,
    local_steps: int = 1,
    correction: str = "stored",
    common_batches: int = 1,
) -> Algorithm:
    """Fast-FedPG on `problem`.

    Args:
        problem: what is learned.
        local_lr: eta.
        global_lr: lambda; eta K if None.
        local_steps: K.
        correction: what an agent does about its drift: stored (the paper), sample, recursive, hessian.
        common_batches: batches per agent behind G.
    """
    choose("correction", correction, CORRECTIONS)
    require(common_batches >= 1, f"common_batches must be at least 1, not {common_batches}")
    global_lr = local_lr * local_steps if global_lr is None else global_lr
    base.check_step(local_lr, global_lr, local_steps)
    (mean_gradient,) = base.initial_direction(problem, common_batches, lambda shared, g: shared._replace(direction=g))

    def init(params: Params) -> tuple[ServerState, AgentState]:
        nothing = trees.zeros_like(params)
        return ServerState(Shared(params, nothing)), AgentState(problem.init_memory(), nothing)

    def first_update(key: jax.Array, shared: Shared, state: AgentState, agent: Any) -> tuple[Params, AgentState, LocalInfo]:
        g, memory, info = mean_gradient.local_update(key, shared, state.memory, agent)
        return g, AgentState(memory, g), info

    def local_update(key: jax.Array, shared: Shared, state: AgentState, agent: Any) -> tuple[Params, AgentState, LocalInfo]:
        offset = trees.subtract(shared.direction, state.gradient)

        def by_gradient(key: jax.Array, params: Params, carry: Carry) -> tuple[Params, Carry, LocalInfo]:
            sample, memory = problem.sample(key, params, agent, carry.memory)
            g, weights = problem.gradient(sample, params), base.no_weights()
            if correction == "stored":
                u = trees.add_scaled(g, 1.0, offset)
            else:
                anchor, known = (shared.params, shared.direction) if correction == "sample" else (carry.previous, carry.latest)
                before, weights = problem.weighted_gradient(sample, anchor, params)
                u = jax.tree.map(lambda g, f, known: g - f + known, g, before, known)
            return u, Carry(memory, params, u), LocalInfo(problem.usage(sample), weights)

        def by_hessian(key: jax.Array, params: Params, carry: Carry) -> tuple[Params, Carry, LocalInfo]:
            alpha_key, sample_key = jax.random.split(key)
            alpha = jax.random.uniform(alpha_key)
            between = jax.tree.map(lambda old, new: alpha * old + (1.0 - alpha) * new, carry.previous, params)
            sample, memory = problem.sample(sample_key, between, agent, carry.memory)
            u = trees.add_scaled(carry.latest, 1.0, problem.hessian_vector(sample, between, trees.subtract(params, carry.previous)))
            return u, Carry(memory, params, u), LocalInfo(problem.usage(sample), base.no_weights())

        direction = by_hessian if correction == "hessian" else by_gradient
        carry = Carry(state.memory, shared.params, shared.direction)
        params, carry, info = base.local_steps(problem, direction, key, shared.params, carry, local_steps, local_lr)
        return trees.subtract(params, shared.params), state._replace(memory=carry.memory), info

    def aggregate(state: ServerState, messages: Params, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(messages, weights, local_steps, local_lr)
        params = problem.project(trees.add_scaled(state.shared.params, global_lr, u))
        return ServerState(state.shared._replace(params=params)), info

    prelude = (Exchange(first_update, mean_gradient.aggregate),)
    return Algorithm("fast-fedpg", init, local_update, aggregate, prelude=prelude)

"""Fast-FedPG: agents first agree on the gradient of the round, then correct their own steps by it. Two exchanges a round.

    first    agent    g_i = g_i(tau|theta_r), a batch of its own;  sends and keeps it          server    G = mean g_i
    second   agent    th_{k+1} = th_k + eta u_k,   u_k as below, K times;  sends Delta_i = th_K - theta_r
             server   theta_{r+1} = theta_r + lambda / (eta K) mean Delta_i

The paper's u is `stored`. The others measure the change since theta_r on the sample at hand instead; with N = 1, where `stored`
is plain policy gradient, they are well-known algorithms (F and Lambda: docs/reference/algorithms/index.md):

    stored      u_k = g_i(tau|th_k) + G - g_i
    sample      u_k = g_i(tau|th_k) - F_i(theta_r; tau, th_k) + G                    SVRPG
    recursive   u_k = g_i(tau|th_k) - F_i(th_{k-1}; tau, th_k) + u_{k-1}             SRVR-PG
    hessian     u_k = Lambda_i(tau|th_a, th_k - th_{k-1}) + u_{k-1},  th_a between   HAPG

with u_{-1} = G and th_{-1} = theta_r. With exact gradients all four have E u = G + grad J_i(th_k) - grad J_i(theta_r), and rest
exactly where grad J = 0, however different the agents are. Zhu, Heath, Mitra, "Towards fast rates for federated and multi-task
reinforcement learning", 2024.
"""

from typing import Any, NamedTuple

import jax

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, Exchange, LocalInfo, Params, Problem, RoundInfo, ServerState
from fedpg.algorithms.fedavg_m import Shared
from fedpg.errors import choose, require

CORRECTIONS = ("stored", "sample", "recursive", "hessian")


class AgentState(NamedTuple):
    """What an agent keeps: its baseline, and g_i from the first exchange to the second."""

    memory: Any
    gradient: Params


def fast_fedpg(
    problem: Problem, *, local_lr: Any, global_lr: Any = None, local_steps: int = 1, correction: str = "stored", common_batches: int = 1
) -> Algorithm:
    """Fast-FedPG on `problem`. `Shared.direction` is G.

    Args:
        problem: what is learned; for sample and recursive it must have importance-weighted gradients, for hessian Hessian-vector products.
        local_lr: eta, the step-size of a local step.
        global_lr: lambda, the step-size of the server; eta K if None.
        local_steps: K.
        correction: how an agent corrects its drift: stored (the paper), sample, recursive, hessian.
        common_batches: batches per agent behind G.
    """
    choose("correction", correction, CORRECTIONS)
    require(common_batches >= 1, f"common_batches must be at least 1, not {common_batches}")
    global_lr = base.server_lr(local_lr, global_lr, local_steps)
    base.require_parts("fast-fedpg", problem, "gradient")
    if correction in ("sample", "recursive"):
        base.require_parts(f"fast-fedpg with correction={correction}", problem, "weighted_gradient")
    elif correction == "hessian":
        base.require_parts("fast-fedpg with correction=hessian", problem, "hessian_vector")
    (mean_gradient,) = base.initial_direction(problem, common_batches)

    def init(params: Params) -> tuple[ServerState, AgentState]:
        zero = trees.zeros_like(params)
        return ServerState(Shared(params, zero)), AgentState(problem.init_memory(), zero)

    def first_update(key: jax.Array, shared: Shared, state: AgentState, agent: Any) -> tuple[Params, AgentState, LocalInfo]:
        g, memory, info = mean_gradient.local_update(key, shared, state.memory, agent)
        return g, AgentState(memory, g), info

    def local_update(key: jax.Array, shared: Shared, state: AgentState, agent: Any) -> tuple[Params, AgentState, LocalInfo]:
        offset = trees.subtract(shared.direction, state.gradient)

        def local_step(carry: tuple, key: jax.Array) -> tuple[tuple, LocalInfo]:
            params, memory, previous, u = carry
            at, weights = params, base.no_weights()
            if correction == "hessian":
                alpha_key, key = jax.random.split(key)
                alpha = jax.random.uniform(alpha_key)
                at = jax.tree.map(lambda old, new: alpha * old + (1.0 - alpha) * new, previous, params)
            sample, memory = problem.sample(key, at, agent, memory)
            if correction == "stored":
                u = trees.add_scaled(problem.gradient(sample, params), 1.0, offset)
            elif correction == "hessian":
                u = trees.add_scaled(u, 1.0, problem.hessian_vector(sample, at, trees.subtract(params, previous)))
            else:
                anchor, known = (shared.params, shared.direction) if correction == "sample" else (previous, u)
                f, weights = problem.weighted_gradient(sample, anchor, params)
                u = jax.tree.map(lambda g, f, known: g - f + known, problem.gradient(sample, params), f, known)
            return (base.ascend(problem, params, local_lr, u), memory, params, u), LocalInfo(problem.usage(sample), weights)

        start = (shared.params, state.memory, shared.params, shared.direction)
        (params, memory, _, _), infos = jax.lax.scan(local_step, start, jax.random.split(key, local_steps))
        return trees.subtract(params, shared.params), state._replace(memory=memory), base.total(infos)

    def aggregate(state: ServerState, deltas: Params, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(deltas, present, local_steps, local_lr)
        return ServerState(state.shared._replace(params=base.ascend(problem, state.shared.params, global_lr, u))), info

    prelude = (Exchange(first_update, mean_gradient.aggregate),)
    return Algorithm("fast-fedpg", init, local_update, aggregate, prelude=prelude)

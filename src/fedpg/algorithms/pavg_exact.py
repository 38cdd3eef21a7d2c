"""PAvg with exact gradients on finite MDPs, in three forms. Jin, Peng, Yang, Wang, Zhang, "Federated reinforcement learning
with environment heterogeneity", AISTATS 2022.

With x_i(s) = sum_t gamma^t P(s_t = s), Q_i and A_i = Q_i - V_i of agent i at the policy of th_k, m = sum_s x_i(s), which is
1/(1-gamma) without a horizon:

    pavg-softmax     G_i = x_i(s) pi(a|s) A_i(s,a)    on logits: grad J_i
    pavg-npg         G_i = m A_i(s,a)                 on logits: the natural gradient, what the authors' code calls softmax
    pavg-projected   G_i = x_i(s) Q_i(s,a)            on probabilities, each row then projected onto the simplex: grad J_i

    agent    th_{k+1} = project(th_k + eta G_i(th_k))       K times; sends Delta_i = th_K - theta_r
    server   u_{r+1} = mean Delta_i / (eta K);   theta_{r+1} = project(theta_r + lambda u_{r+1})

With lambda = eta K, the default, the server takes the mean of the agents' logits (a geometric mean of policies) or of their
probabilities. Nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.algorithms.pavg import Shared
from fedpg.errors import require
from fedpg.gradients.exact import Exact, Tables
from fedpg.problem import Problem, Usage
from fedpg.trees import Params

PARAMS = {"softmax": "logits", "direct": "probabilities"}
"""What the table of each policy is called among its params."""


def tables_of(name: str, problem: Problem, table: str) -> Exact:
    """What `problem` computes exactly, if it is a finite MDP with the `table` policy; else a `UserError` that names both."""
    fits = problem.exact is not None and problem.exact.table == table
    require(fits, f"{name} computes with the whole table of a finite MDP: use --env random-mdp or conflict, and --policy {table}")
    return problem.exact


def nothing_spent() -> LocalInfo:
    """What a local step without sampling reports."""
    none = jnp.zeros((), int)
    return LocalInfo(Usage(none, none, jnp.zeros(())), base.no_weights())


def _averaging(
    name: str,
    problem: Problem,
    table: str,
    ascent: Callable[[Tables], jax.Array],
    *,
    local_lr: Any,
    global_lr: Any,
    local_steps: int,
) -> Algorithm:
    """The form whose direction is ascent(tables), (S, A)."""
    exact = tables_of(name, problem, table)
    global_lr = local_lr * local_steps if global_lr is None else global_lr
    base.check_step(local_lr, global_lr, local_steps)

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params)), ()

    def local_update(key: jax.Array, shared: Shared, memory: Any, agent: Any) -> tuple[Params, Any, LocalInfo]:
        def direction(key: jax.Array, params: Params, memory: Any) -> tuple[Params, Any, LocalInfo]:
            return {PARAMS[table]: ascent(exact.solve(params, agent))}, memory, nothing_spent()

        params, memory, info = base.local_steps(problem, direction, key, shared.params, memory, local_steps, local_lr)
        return trees.subtract(params, shared.params), memory, info

    def aggregate(state: ServerState, messages: Params, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
        u, info = base.mean_direction(messages, weights, local_steps, local_lr)
        return ServerState(Shared(problem.project(trees.add_scaled(state.shared.params, global_lr, u)))), info

    return Algorithm(name, init, local_update, aggregate)


def pavg_softmax(problem: Problem, *, local_lr: Any, global_lr: Any = None, local_steps: int = 1) -> Algorithm:
    """Exact gradient ascent on logits; `global_lr` defaults to local_lr * local_steps."""
    return _averaging(
        "pavg-softmax", problem, "softmax", lambda t: t.occupancy[:, None] * t.probabilities * t.advantages,
        local_lr=local_lr, global_lr=global_lr, local_steps=local_steps,
    )  # fmt: skip


def pavg_npg(problem: Problem, *, local_lr: Any, global_lr: Any = None, local_steps: int = 1) -> Algorithm:
    """Exact natural gradient ascent on logits: a local step is pi <- pi exp(local_lr m A), normalised."""
    return _averaging(
        "pavg-npg", problem, "softmax", lambda t: jnp.sum(t.occupancy) * t.advantages,
        local_lr=local_lr, global_lr=global_lr, local_steps=local_steps,
    )  # fmt: skip


def pavg_projected(problem: Problem, *, local_lr: Any, global_lr: Any = None, local_steps: int = 1) -> Algorithm:
    """Exact projected gradient ascent on probabilities."""
    return _averaging(
        "pavg-projected", problem, "direct", lambda t: t.occupancy[:, None] * t.values,
        local_lr=local_lr, global_lr=global_lr, local_steps=local_steps,
    )  # fmt: skip

"""PAvg with exact gradients on finite MDPs, in three forms. Nothing is sampled.

With x_i(s) = sum_t gamma^t P(s_t = s), Q_i and A_i = Q_i - V_i of agent i at the policy of th_k, m = sum_s x_i(s), which is
1/(1-gamma) without a horizon:

    pavg-softmax     G_i = x_i(s) pi(a|s) A_i(s,a)    on logits: grad J_i
    pavg-npg         G_i = m A_i(s,a)                 on logits: the natural gradient, what the authors' code calls softmax
    pavg-projected   G_i = x_i(s) Q_i(s,a)            on probabilities, each row then projected onto the simplex: grad J_i

    agent    th_{k+1} = project(th_k + eta G_i(th_k))       K times; sends Delta_i = th_K - theta_r
    server   u_{r+1} = mean Delta_i / (eta K);   theta_{r+1} = project(theta_r + lambda u_{r+1})

With lambda = eta K, the default, the server takes the mean of the agents' logits (a geometric mean of policies) or of their
probabilities. Jin, Peng, Yang, Wang, Zhang, "Federated reinforcement learning with environment heterogeneity", AISTATS 2022.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, Problem
from fedpg.algorithms.pavg import pavg
from fedpg.errors import require
from fedpg.gradients.exact import Exact, Tables

PARAMS = {"softmax": "logits", "direct": "probabilities"}
"""The name of each policy's table among its params."""


def require_tables(name: str, problem: Problem, table: str) -> Exact:
    """What `problem` computes exactly, if it is a finite MDP with the `table` policy."""
    fits = problem.exact is not None and problem.exact.table == table
    require(fits, f"{name} computes with the whole table of a finite MDP: use --env random-mdp or conflict, and --policy {table}")
    return problem.exact


def _pavg(
    name: str, problem: Problem, table: str, ascent: Callable[[Tables], jax.Array], local_lr: Any, global_lr: Any, local_steps: int
) -> Algorithm:
    """PAvg whose samples are the agents' MDPs themselves and whose gradient is ascent(tables), (S, A)."""
    exact = require_tables(name, problem, table)
    without_sampling = problem._replace(
        init_memory=lambda: (),
        sample=lambda key, params, mdp, memory: (mdp, memory),
        gradient=lambda mdp, params: {PARAMS[table]: ascent(exact.solve(params, mdp))},
        usage=lambda mdp: base.no_cost().usage,
    )
    return pavg(without_sampling, local_lr=local_lr, global_lr=global_lr, local_steps=local_steps)._replace(name=name)


def pavg_softmax(problem: Problem, *, local_lr: Any, global_lr: Any = None, local_steps: int = 1) -> Algorithm:
    """Exact gradient ascent on logits.

    Args:
        problem: a finite MDP with a tabular policy.
        local_lr: eta, the step-size of a local step.
        global_lr: lambda, the step-size of the server; eta K if None.
        local_steps: K.
    """
    return _pavg(
        "pavg-softmax",
        problem,
        "softmax",
        lambda t: t.occupancy[:, None] * t.probabilities * t.advantages,
        local_lr,
        global_lr,
        local_steps,
    )


def pavg_npg(problem: Problem, *, local_lr: Any, global_lr: Any = None, local_steps: int = 1) -> Algorithm:
    """Exact natural gradient ascent on logits: a local step is pi <- pi exp(eta m A), normalised.

    Args:
        problem: a finite MDP with a tabular policy.
        local_lr: eta, the step-size of a local step.
        global_lr: lambda, the step-size of the server; eta K if None.
        local_steps: K.
    """
    return _pavg("pavg-npg", problem, "softmax", lambda t: jnp.sum(t.occupancy) * t.advantages, local_lr, global_lr, local_steps)


def pavg_projected(problem: Problem, *, local_lr: Any, global_lr: Any = None, local_steps: int = 1) -> Algorithm:
    """Exact projected gradient ascent on probabilities.

    Args:
        problem: a finite MDP with a tabular policy.
        local_lr: eta, the step-size of a local step.
        global_lr: lambda, the step-size of the server; eta K if None.
        local_steps: K.
    """
    return _pavg("pavg-projected", problem, "direct", lambda t: t.occupancy[:, None] * t.values, local_lr, global_lr, local_steps)

"""FAPI: federated approximate policy iteration, exact and on tables. Xie, Song, "Client selection for federated policy
optimization with environment heterogeneity", JMLR 2025.

    agent    pi_i = pi_r;  K times:  Q_i = the value of pi_i in its own environment, pi_i = improved(pi_i, Q_i);  sends pi_i
    server   pi_{r+1}(a|s) = (1-mu) pi_r(a|s) + mu mean_i pi_i(a|s)

    soft     improved(pi, Q)(a|s) prop. to pi(a|s) exp(Q(s,a) / tau)
    greedy   all of pi(.|s) on the actions with the largest Q(s,.), equal shares if there are several

It is probabilities that are averaged, not params. What the bound says and why greedy needs mu < 1: docs/algorithms/fapi.md.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms.aggregation import mean
from fedpg.algorithms.base import Algorithm, LocalInfo, RoundInfo, ServerState
from fedpg.algorithms.pavg import Shared
from fedpg.algorithms.pavg_exact import nothing_spent
from fedpg.errors import choose, require
from fedpg.problem import Problem
from fedpg.trees import Params

IMPROVEMENTS = ("soft", "greedy")
MIXING = {"soft": 1.0, "greedy": 0.1}
"""mu, where it is not given."""


def improved(probabilities: jax.Array, values: jax.Array, improvement: str, temperature: Any) -> jax.Array:
    """A policy better than pi, (S, A), where its values are Q, (S, A)."""
    if improvement == "greedy":
        best = (values == jnp.max(values, axis=1, keepdims=True)).astype(values.dtype)
        return best / jnp.sum(best, axis=1, keepdims=True)
    return jax.nn.softmax(jnp.log(probabilities) + values / temperature, axis=1)


def params_of(table: str, probabilities: jax.Array) -> Params:
    """The params of the `table` policy that is pi, (S, A); logits of what cannot happen are those of the smallest number there is."""
    if table == "direct":
        return {"probabilities": probabilities}
    return {"logits": jnp.log(jnp.maximum(probabilities, jnp.finfo(probabilities.dtype).tiny))}


def fapi(problem: Problem, *, local_steps: int = 1, improvement: str = "soft", temperature: Any = 1.0, mixing: Any = None) -> Algorithm:
    """FAPI on a finite MDP with a policy that is a table.

    Args:
        problem: what is learned.
        local_steps: K, how often an agent evaluates and improves its policy in a round.
        improvement: soft or greedy.
        temperature: tau, of soft improvement; small is nearly greedy.
        mixing: mu in (0, 1], how far the server goes; by default 1 for soft, 0.1 for greedy.
    """
    choose("improvement", improvement, IMPROVEMENTS)
    require(local_steps >= 1, f"local-steps must be at least 1, not {local_steps}")
    require(not isinstance(temperature, (int, float)) or temperature > 0, f"temperature must be positive, not {temperature}")
    mu = MIXING[improvement] if mixing is None else mixing
    require(not isinstance(mu, (int, float)) or 0.0 < mu <= 1.0, f"mixing must be in (0, 1], not {mu}")
    hint = "use --env random-mdp or conflict with --policy softmax or direct, or elsewhere --algorithm fedkl"
    require(problem.exact is not None, f"fapi improves the whole table of a finite MDP: {hint}")
    table, solve = problem.exact

    def stored(probabilities: jax.Array) -> Params:
        return problem.project(params_of(table, probabilities))

    def policy_of(params: Params) -> jax.Array:
        return jax.nn.softmax(params["logits"], axis=1) if table == "softmax" else params["probabilities"]

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params)), ()

    def local_update(key: jax.Array, shared: Shared, nothing: Any, agent: Any) -> tuple[jax.Array, Any, LocalInfo]:
        def step(_: Any, probabilities: jax.Array) -> jax.Array:
            found = solve(stored(probabilities), agent)
            return improved(found.probabilities, found.values, improvement, temperature)

        return jax.lax.fori_loop(0, local_steps, step, policy_of(shared.params)), nothing, nothing_spent()

    def aggregate(state: ServerState, messages: jax.Array, weights: jax.Array) -> tuple[ServerState, RoundInfo]:
        before = policy_of(state.shared.params)
        u = mean(messages, weights) - before
        drift = mean(jax.vmap(lambda pi: trees.norm_sq(pi - before))(messages), weights)
        return ServerState(Shared(stored(before + mu * u))), RoundInfo(trees.norm_sq(u), drift)

    return Algorithm("fapi", init, local_update, aggregate, predicted=lambda shared: jnp.zeros_like(policy_of(shared.params)))

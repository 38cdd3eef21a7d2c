"""FAPI: federated approximate policy iteration, exact and on tables.

    agent    pi_i = pi_r;  K times:  Q_i = the value of pi_i in its own environment, pi_i = improved(pi_i, Q_i);  sends pi_i
    server   pi_{r+1}(a|s) = (1-mu) pi_r(a|s) + mu mean_i pi_i(a|s)

    soft     improved(pi, Q)(a|s) prop. to pi(a|s) exp(Q(s,a) / tau)
    greedy   all of pi(.|s) on the actions with the largest Q(s,.), equal shares if there are several

Probabilities are averaged, not params. docs/reference/algorithms/fapi.md has the bound, and why greedy needs mu < 1. Xie, Song, "Client
selection for federated policy optimization with environment heterogeneity", JMLR 2025.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalInfo, Params, Problem, RoundInfo, ServerState
from fedpg.algorithms.pavg import Shared
from fedpg.errors import choose, require

MIXING = {"soft": 1.0, "greedy": 0.1}
"""The default mu."""


def improved(probabilities: jax.Array, values: jax.Array, improvement: str, temperature: Any) -> jax.Array:
    """A policy better than pi, (S, A), where its values are Q, (S, A)."""
    if improvement == "greedy":
        best = (values == jnp.max(values, axis=1, keepdims=True)).astype(values.dtype)
        return best / jnp.sum(best, axis=1, keepdims=True)
    return jax.nn.softmax(jnp.log(probabilities) + values / temperature, axis=1)


def fapi(problem: Problem, *, local_steps: int = 1, improvement: str = "soft", temperature: Any = 1.0, mixing: Any = None) -> Algorithm:
    """FAPI on a finite MDP with a policy that is a table.

    Args:
        problem: a finite MDP with a tabular policy.
        local_steps: K, how often an agent evaluates and improves its policy in a round.
        improvement: soft or greedy.
        temperature: tau, of soft improvement; small is nearly greedy.
        mixing: mu in (0, 1]; by default 1 for soft, 0.1 for greedy.
    """
    choose("improvement", improvement, MIXING)
    require(local_steps >= 1, f"local-steps must be at least 1, not {local_steps}")
    require(not base.is_known(temperature) or temperature > 0, f"temperature must be positive, not {temperature}")
    mu = MIXING[improvement] if mixing is None else mixing
    require(not base.is_known(mu) or 0.0 < mu <= 1.0, f"mixing must be in (0, 1], not {mu}")
    hint = "use --env random-mdp or conflict with --policy softmax or direct, or elsewhere --algorithm fedkl"
    require(problem.exact is not None, f"fapi improves the whole table of a finite MDP: {hint}")
    table, solve = problem.exact

    def params_of(pi: jax.Array) -> Params:
        """The params of a policy; the logit of an impossible action is that of the smallest positive number."""
        if table == "direct":
            return problem.project({"probabilities": pi})
        return problem.project({"logits": jnp.log(jnp.maximum(pi, jnp.finfo(pi.dtype).tiny))})

    def policy_of(params: Params) -> jax.Array:
        return jax.nn.softmax(params["logits"], axis=1) if table == "softmax" else params["probabilities"]

    def init(params: Params) -> tuple[ServerState, Any]:
        return ServerState(Shared(params)), ()

    def local_update(key: jax.Array, shared: Shared, nothing: Any, agent: Any) -> tuple[jax.Array, Any, LocalInfo]:
        def local_step(_: int, pi: jax.Array) -> jax.Array:
            tables = solve(params_of(pi), agent)
            return improved(tables.probabilities, tables.values, improvement, temperature)

        return jax.lax.fori_loop(0, local_steps, local_step, policy_of(shared.params)), nothing, base.no_cost()

    def aggregate(state: ServerState, policies: jax.Array, present: jax.Array) -> tuple[ServerState, RoundInfo]:
        pi = policy_of(state.shared.params)
        u = base.mean(policies, present) - pi
        drift = base.mean(jax.vmap(lambda own: trees.norm_sq(own - pi))(policies), present)
        return ServerState(Shared(params_of(pi + mu * u))), RoundInfo(trees.norm_sq(u), drift)

    def predicted(shared: Shared) -> jax.Array:
        return jnp.zeros_like(policy_of(shared.params))

    return Algorithm("fapi", init, local_update, aggregate, predicted=predicted, additive=False)

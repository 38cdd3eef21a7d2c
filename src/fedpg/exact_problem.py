"""A finite MDP as a `Problem` without sampling: what an algorithm settles at when its gradients carry no noise.

A sample is the MDP itself. Its gradient at any params is grad J_i there, so every importance weight is 1 and Lambda is the
Hessian times v. Its surrogate at th is sum_s x_b(s) sum_a pi_b(a|s) clip(pi_th(a|s) / pi_b(a|s)) A_b(s,a).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedpg.envs.base import Environment, space_size
from fedpg.envs.tabular import MDP
from fedpg.gradients import exact
from fedpg.gradients.importance import Weights
from fedpg.gradients.surrogate import Divergence, Surrogate, averaged, clipped, table_divergence
from fedpg.policies.base import Policy
from fedpg.problem import Evaluation, Problem, Usage
from fedpg.trees import Params


def exact_problem(environment: Environment, policy: Policy, *, discount: float, horizon: int | None = None) -> Problem:
    """The problem for `MDP` agents with exact gradients.

    Args:
        environment: a finite MDP, see `fedpg.envs.tabular`.
        policy: what is learned.
        discount: gamma.
        horizon: H; None is the infinite sum.
    """

    def gradient(mdp: MDP, params: Params) -> Params:
        return policy.free(exact.gradient(policy, params, mdp, discount, horizon))

    def hessian_vector(mdp: MDP, params: Params, vector: Params) -> Params:
        return jax.jvp(lambda at: gradient(mdp, at), (params,), (vector,))[1]

    def evaluate(key: jax.Array, params: Params, mdp: MDP) -> Evaluation:
        objective = exact.objective(policy, params, mdp, discount, horizon)
        # Without a horizon an undiscounted sum may not exist.
        total_return = objective if horizon is None else exact.objective(policy, params, mdp, 1.0, horizon)
        return Evaluation(total_return, objective, exact.gradient(policy, params, mdp, discount, horizon))

    def log_tables(mdp: MDP, *several: Params) -> list[jax.Array]:
        return [exact.log_table(policy, params, *mdp.reward.shape) for params in several]

    def surrogate(mdp: MDP, params: Params, behaviour: Params) -> Surrogate:
        log_pi, log_behaviour = log_tables(mdp, params, behaviour)
        there = exact.tables(mdp, log_behaviour, discount, horizon)
        worth = there.occupancy[:, None] * there.probabilities * there.advantages
        value = jnp.sum(clipped(log_pi - log_behaviour) * worth)
        return Surrogate(value, jnp.sum(there.occupancy), jnp.max(jnp.abs(there.advantages)))

    def divergence(mdp: MDP, params: Params, other: Params) -> Divergence:
        """Over the states that pi_other visits; a sampled one is over those of the sample, wherever that was drawn."""
        log_pi, log_other = log_tables(mdp, params, other)
        return averaged(table_divergence(log_other, log_pi), exact.tables(mdp, log_other, discount, horizon).occupancy)

    one, none = jnp.ones(()), jnp.zeros((), int)
    return Problem(
        init_params=policy.init,
        init_memory=lambda: (),
        sample=lambda key, params, mdp, memory: (mdp, memory),
        gradient=gradient,
        weighted_gradient=lambda mdp, params, behaviour: (gradient(mdp, params), Weights(one, one, one, one)),
        hessian_vector=hessian_vector,
        usage=lambda mdp: Usage(none, none, jnp.zeros(())),
        evaluate=evaluate,
        project=policy.project,
        step_floats=space_size(environment.observation_space) + space_size(environment.action_space) + 1,
        exact=exact.exact(policy, discount, horizon),
        surrogate=surrogate,
        divergence=divergence,
    )

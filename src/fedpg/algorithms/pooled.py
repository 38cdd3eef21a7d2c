"""Pooled: all environments in one place, so that trajectories may be mixed. The best that a federation can hope for.

th <- th + eta mean_i g_i(tau_i|th)         K times a round, one batch from every agent each time
"""

from typing import Any

import jax

from fedpg import trees
from fedpg.algorithms.base import Algorithm, Params
from fedpg.algorithms.pavg import pavg
from fedpg.problem import Problem, Usage, total_usage


def pool(problem: Problem, agents: int) -> Problem:
    """The problem of one learner that holds all N agents: a sample is one batch of each, a gradient their mean."""
    if problem.pooled is not None:
        return problem.pooled(agents)

    def sample(key: jax.Array, params: Params, all_agents: Any, memory: Any) -> tuple[Any, Any]:
        return jax.vmap(problem.sample, (0, None, 0, 0))(jax.random.split(key, agents), params, all_agents, memory)

    def gradient(samples: Any, params: Params) -> Params:
        return trees.mean_axis0(jax.vmap(problem.gradient, (0, None))(samples, params))

    def usage(samples: Any) -> Usage:
        return total_usage(jax.vmap(problem.usage)(samples))

    return problem._replace(
        init_memory=lambda: trees.broadcast(problem.init_memory(), agents),
        sample=sample,
        gradient=gradient,
        weighted_gradient=None,
        hessian_vector=None,
        usage=usage,
    )


def pooled(problem: Problem, *, agents: int, local_lr: Any, global_lr: Any = None, local_steps: int = 1) -> Algorithm:
    """Centralised policy gradient on the mean objective of all agents.

    Args:
        problem: what is learned.
        agents: N, the agents whose environments are pooled.
        local_lr: eta, the step-size of a local step.
        global_lr: lambda, the step-size of the server; eta K if None.
        local_steps: K.
    """
    central = pavg(pool(problem, agents), local_lr=local_lr, global_lr=global_lr, local_steps=local_steps)
    return central._replace(name="pooled", pooled=True)

"""Pooled: all environments in one place, so that trajectories may be mixed. What federation may hope to reach.

th <- th + eta mean_i g_i(tau_i|th)         K times a round, one batch from every agent each time
"""

from __future__ import annotations

from typing import Any

import jax

from fedpg import trees
from fedpg.algorithms.base import Algorithm
from fedpg.algorithms.pavg import pavg
from fedpg.gradients.importance import Weights
from fedpg.problem import Problem, Usage, total_usage
from fedpg.trees import Params


def pool(problem: Problem, agents: int) -> Problem:
    """The problem of one learner who holds all N agents: a sample is one batch of each, a gradient their mean."""

    def sample(key: jax.Array, params: Params, everyone: Any, memory: Any) -> tuple[Any, Any]:
        return jax.vmap(problem.sample, (0, None, 0, 0))(jax.random.split(key, agents), params, everyone, memory)

    def weighted_gradient(samples: Any, params: Params, behaviour: Params) -> tuple[Params, Weights]:
        gradients, weights = jax.vmap(problem.weighted_gradient, (0, None, None))(samples, params, behaviour)
        added = Weights(*(x.sum(0) for x in weights))
        return trees.mean_axis0(gradients), added._replace(largest=weights.largest.max(0))

    def usage(samples: Any) -> Usage:
        return total_usage(jax.vmap(problem.usage)(samples))

    return problem._replace(
        init_memory=lambda: trees.broadcast(problem.init_memory(), agents),
        sample=sample,
        gradient=lambda samples, params: trees.mean_axis0(jax.vmap(problem.gradient, (0, None))(samples, params)),
        weighted_gradient=weighted_gradient,
        hessian_vector=lambda samples, params, vector: trees.mean_axis0(
            jax.vmap(problem.hessian_vector, (0, None, None))(samples, params, vector)
        ),
        usage=usage,
    )


def pooled(problem: Problem, *, agents: int, local_lr: Any, global_lr: Any = None, local_steps: int = 1) -> Algorithm:
    """Centralised policy gradient on the average objective of N `agents`."""
    centre = pavg(pool(problem, agents), local_lr=local_lr, global_lr=global_lr, local_steps=local_steps)
    return centre._replace(name="pooled", pooled=True)

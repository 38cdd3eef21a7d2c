"""What the two ways of estimating have in common: `batch` keeps trajectories, `visits` counts of a finite MDP's states and actions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import moments
from fedpg.gradients.importance import Weights
from fedpg.gradients.surrogate import Divergence, Surrogate
from fedpg.trees import Params


class Usage(NamedTuple):
    """What a sample cost and earned; usages add up.

    Attributes:
        trajectories: number of trajectories, ().
        env_steps: executed steps, ().
        total_return: sum of undiscounted returns, ().
        observations: the moments of what was seen; () where nobody asks for them.
    """

    trajectories: jax.Array
    env_steps: jax.Array
    total_return: jax.Array
    observations: Any = ()


def total_usage(usages: Usage) -> Usage:
    """Adds up usages along their leading axis."""
    seen = moments.merge(usages.observations) if usages.observations else ()
    return Usage(*(jnp.sum(x, axis=0) for x in usages[:3]), seen)


@dataclasses.dataclass(frozen=True)
class Choices:
    """How gradients are estimated."""

    horizon: int
    """H, the most steps of a trajectory."""
    discount: float
    """gamma, counted from time 0."""
    batch_size: int = 1
    """Trajectories per sample."""
    baseline: str = "none"
    """b(s_t, t), one of `baselines.NAMES`."""
    normalise_advantages: bool = False
    """Standardise advantages over each batch."""
    weights: str = "trajectory"
    """Importance weights, one of `importance.KINDS`."""
    weight_cap: float = 2.0
    """Where truncated weights are cut."""
    watch_observations: bool = False
    """Report the moments of what was seen with the usage of a sample."""


class Estimator(NamedTuple):
    """A way to sample, and to estimate g and F from a sample. Pure functions for one agent, like those of `Problem`.

    Attributes:
        init_memory: () -> memory.
        sample: (key, params, agent, memory) -> sample, memory.
        gradient: (sample, params) -> mean of g(tau|params) over the batch.
        weighted_gradient: (sample, params, behaviour) -> mean of F(params; tau, behaviour), Weights. Differentiable in
            params through the weight as well as through g.
        usage: sample -> Usage.
        surrogate: (sample, params, behaviour) -> Surrogate, see `fedpg.gradients.surrogate`.
        divergence: (sample, params, other) -> Divergence of pi_params from pi_other; None where the policy does not say.
    """

    init_memory: Callable[[], Any]
    sample: Callable[[jax.Array, Params, Any, Any], tuple[Any, Any]]
    gradient: Callable[[Any, Params], Params]
    weighted_gradient: Callable[[Any, Params, Params], tuple[Params, Weights]]
    usage: Callable[[Any], Usage]
    surrogate: Callable[[Any, Params, Params], Surrogate]
    divergence: Callable[[Any, Params, Params], Divergence] | None

"""A policy that sees observations on a common scale, with the scale among its params.

    pi(. | s) = inner( . | (s - mean) / deviation )

Mean and deviation are params like the others: importance weights and Hessian-vector products see them change. But gradients
do not move them (`free`); the server sets them, see `fedpg.algorithms.wrappers.observation_scaling`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.moments import Moments, variance
from fedpg.policies.base import Policy
from fedpg.trees import Params

FURTHEST = 10.0
"""Observations further from the mean than this many deviations are cut: a single odd one must not run the policy off."""
SMALLEST = 1e-6
"""Entries whose deviation is this share of their size are taken as constant and not scaled."""


class Scale(NamedTuple):
    """Attributes:
    mean: of each entry of an observation, like an observation.
    deviation: likewise.
    """

    mean: jax.Array
    deviation: jax.Array


class Normalised(NamedTuple):
    """Params of a normalised policy: those of the policy inside, and the scale of its observations."""

    inner: Params
    scale: Scale


def scale_of(moments: Moments, shape: tuple[int, ...]) -> Scale:
    """The scale that gives what `moments` describe mean 0 and deviation 1."""
    deviation = jnp.sqrt(variance(moments))
    constant = deviation <= SMALLEST * (1.0 + jnp.abs(moments.mean))
    return Scale(moments.mean.reshape(shape), jnp.where(constant, 1.0, deviation).reshape(shape))


def normalised(inner: Policy, shape: tuple[int, ...]) -> Policy:
    """`inner` on normalised observations of `shape`; the scale starts as mean 0, deviation 1."""

    def seen(params: Normalised, observation: jax.Array) -> jax.Array:
        z = (observation - params.scale.mean) / params.scale.deviation
        return jnp.clip(z, -FURTHEST, FURTHEST)

    return Policy(
        init=lambda key: Normalised(inner.init(key), Scale(jnp.zeros(shape), jnp.ones(shape))),
        act=lambda noise, params, observation: inner.act(noise, params.inner, seen(params, observation)),
        log_prob=lambda params, observation, action: inner.log_prob(params.inner, seen(params, observation), action),
        draw=inner.draw,
        project=lambda params: params._replace(inner=inner.project(params.inner)),
        free=lambda direction: direction._replace(inner=inner.free(direction.inner), scale=trees.zeros_like(direction.scale)),
        outputs=inner.outputs and (lambda params, observation: inner.outputs(params.inner, seen(params, observation))),
    )

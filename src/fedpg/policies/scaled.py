"""A policy on scaled observations, with the scale among its params.

    pi(. | s) = inner( . | (s - mean) / deviation )

Mean and deviation are params like the others: importance weights and Hessian-vector products see them change. But gradients
do not move them (`free`); the server sets them, see `fedpg.algorithms.wrappers.observation_scaling`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.moments import Moments, variance
from fedpg.policies.base import Network, Policy, describes
from fedpg.trees import Params

FURTHEST = 10.0
"""Scaled observations are clipped to +- this, so that a single outlier cannot dominate."""
SMALLEST = 1e-6
"""Entries whose deviation is below this share of their size are constant and not scaled."""


class Scale(NamedTuple):
    """The mean and deviation of each entry of an observation, like an observation."""

    mean: jax.Array
    deviation: jax.Array


class Scaled(NamedTuple):
    """Params of a policy on scaled observations."""

    inner: Params  # of the policy inside
    scale: Scale


def scale_of(moments: Moments, shape: tuple[int, ...]) -> Scale:
    """The scale on which observations with these moments have mean 0 and deviation 1."""
    deviation = jnp.sqrt(variance(moments))
    constant = deviation <= SMALLEST * (1.0 + jnp.abs(moments.mean))
    return Scale(moments.mean.reshape(shape), jnp.where(constant, 1.0, deviation).reshape(shape))


def clipped(observation: jax.Array, mean: jax.Array, deviation: jax.Array) -> jax.Array:
    """A scaled observation."""
    return jnp.clip((observation - mean) / deviation, -FURTHEST, FURTHEST)


def scaled(inner: Policy, shape: tuple[int, ...]) -> Policy:
    """`inner` on scaled observations of `shape`; the scale starts as mean 0, deviation 1."""

    def seen(params: Scaled, observation: jax.Array) -> jax.Array:
        return clipped(observation, *params.scale)

    def of_inner(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
        return function and (lambda params, observation: function(params.inner, seen(params, observation)))

    def act(noise: Any, params: Scaled, observation: jax.Array) -> jax.Array:
        return inner.act(noise, params.inner, seen(params, observation))

    def log_prob(params: Scaled, observation: jax.Array, action: jax.Array) -> jax.Array:
        return inner.log_prob(params.inner, seen(params, observation), action)

    network = None
    if describes(inner):
        network = Network(
            act,
            log_prob,
            layers=lambda params: inner.network.layers(params.inner),
            like=lambda layers, params: Scaled(inner.network.like(layers, params.inner), trees.zeros_like(params.scale)),
            scale=lambda params: tuple(params.scale),
        )
    return Policy(
        init=lambda key: Scaled(inner.init(key), Scale(jnp.zeros(shape), jnp.ones(shape))),
        act=act,
        log_prob=log_prob,
        draw=inner.draw,
        project=lambda params: params._replace(inner=inner.project(params.inner)),
        free=lambda direction: direction._replace(inner=inner.free(direction.inner), scale=trees.zeros_like(direction.scale)),
        outputs=of_inner(inner.outputs),
        value=of_inner(inner.value),
        network=network,
    )

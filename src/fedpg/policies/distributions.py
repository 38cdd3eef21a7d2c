"""Distributions of actions as a policy outputs them: their modes, entropies and divergences.

A policy's `outputs` are logits, (A,), for discrete actions and a `Normal` or `Squashed` for continuous ones.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.envs.base import Discrete, Space
from fedpg.policies.base import Policy
from fedpg.trees import Params


class Normal(NamedTuple):
    """A normal distribution with independent entries.

    Attributes:
        mean: (D,).
        log_std: (D,).
    """

    mean: jax.Array
    log_std: jax.Array


class Squashed(NamedTuple):
    """The distribution of tanh(x), x normal with this mean and log_std, (D,) each."""

    mean: jax.Array
    log_std: jax.Array


Outputs = Callable[[Params, jax.Array], Any]
"""(params, observation) -> logits (A,), `Normal` or `Squashed`."""


def outputs_of(policy: Policy, actions: Space) -> Outputs | None:
    """The outputs of a policy; for discrete actions also from log_prob of every action; None if they are not known."""
    if policy.outputs is not None or not isinstance(actions, Discrete):
        return policy.outputs
    every = jnp.arange(actions.n)
    return lambda params, observation: jax.vmap(policy.log_prob, (None, None, 0))(params, observation, every)


def divergence(p: Any, q: Any) -> jax.Array:
    """KL(p||q) of two outputs, ().

    >>> round(float(divergence(jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.25, 0.75])))), 4)
    0.1438
    """
    if isinstance(p, (Normal, Squashed)):  # squashing changes no divergence
        narrower = p.log_std - q.log_std
        apart = jnp.square(jnp.exp(narrower)) + jnp.square((p.mean - q.mean) * jnp.exp(-q.log_std))
        return jnp.sum(0.5 * (apart - 1.0) - narrower)
    log_p, log_q = jax.nn.log_softmax(p), jax.nn.log_softmax(q)
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q))


def entropy(p: Any) -> jax.Array:
    """The entropy of outputs, (); of `Squashed` that of the normal distribution before squashing, which has a closed form.

    >>> round(float(entropy(jnp.zeros(4))), 4), round(float(entropy(Normal(jnp.zeros(1), jnp.zeros(1)))), 4)
    (1.3863, 1.4189)
    """
    if isinstance(p, (Normal, Squashed)):
        return jnp.sum(p.log_std + 0.5 * (1.0 + math.log(2.0 * math.pi)))
    log_p = jax.nn.log_softmax(p)
    return -jnp.sum(jnp.exp(log_p) * log_p)


def mode(p: Any, actions: Space) -> jax.Array:
    """The action that a deterministic evaluation takes: the most likely one; of `Squashed` the squashed mean.

    >>> int(mode(jnp.array([0.1, 0.7, 0.2]), Discrete(3)))
    1
    """
    if isinstance(p, (Normal, Squashed)):
        return jnp.reshape(jnp.tanh(p.mean) if isinstance(p, Squashed) else p.mean, actions.shape)
    return jnp.argmax(p).astype(jnp.int32)

"""Distributions of actions as a policy outputs them, and the divergence between two of them.

A policy's `outputs` are logits, (A,), for discrete actions and a `Normal` for continuous ones.
"""

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


Outputs = Callable[[Params, jax.Array], Any]
"""(params, observation) -> logits (A,), or `Normal`."""


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
    if isinstance(p, Normal):
        narrower = p.log_std - q.log_std
        apart = jnp.square(jnp.exp(narrower)) + jnp.square((p.mean - q.mean) * jnp.exp(-q.log_std))
        return jnp.sum(0.5 * (apart - 1.0) - narrower)
    log_p, log_q = jax.nn.log_softmax(p), jax.nn.log_softmax(q)
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q))

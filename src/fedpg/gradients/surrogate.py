"""The clipped surrogate objective, and the divergence between policies in the states of a sample. FedKL maximises both together.

    surrogate   mean over trajectories of sum_t clip(pi_th(a_t|s_t) / pi_b(a_t|s_t), 1e-8, 10) c_t
    divergence  mean over visited states of KL(pi_b(.|s) || pi_th(.|s)), and of its square root

with b the behaviour and c_t = G_t - gamma^t b(s_t, t) the coefficients of g. The gradient of the surrogate at th = b is g.
The exact forms replace the sample by the occupancy x and the advantages A of the behaviour in a finite MDP:

    surrogate   sum_s x(s) sum_a pi_b(a|s) clip(pi_th(a|s) / pi_b(a|s)) A(s,a)
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpg.gradients.batch import Batch, batch_coefficients, log_ratios
from fedpg.gradients.exact import Tables
from fedpg.policies import distributions
from fedpg.policies.base import Policy
from fedpg.policies.distributions import Outputs
from fedpg.trees import Params

SMALLEST, LARGEST = 1e-8, 10.0
"""Bounds of the ratio, as in FedKL's code."""
LEAST = 1e-8
"""Lower bound of a divergence under the square root, whose slope is infinite at 0."""


class Surrogate(NamedTuple):
    """The surrogate of a sample."""

    value: jax.Array  # ()
    length: jax.Array  # mean number of steps of a trajectory; for the exact form sum_t gamma^t, ()
    largest: jax.Array  # max |c_t|, ()


class Divergence(NamedTuple):
    """The divergence between two policies in the states of a sample."""

    mean: jax.Array  # of KL over states, ()
    root: jax.Array  # mean of sqrt(max(KL, 1e-8)), ()


def clipped(log_ratio: jax.Array) -> jax.Array:
    """The ratio within [1e-8, 10]. Clipping its logarithm makes the gradient 0 outside and never NaN."""
    return jnp.exp(jnp.clip(log_ratio, jnp.log(SMALLEST), jnp.log(LARGEST)))


def _mean_divergence(divergences: jax.Array, visits: jax.Array) -> Divergence:
    """The means of divergences, weighted by the visits of each state; both of one shape."""
    share = visits / jnp.maximum(jnp.sum(visits), jnp.finfo(visits.dtype).tiny)
    divergences = jnp.where(visits > 0, divergences, 0.0)
    return Divergence(jnp.sum(share * divergences), jnp.sum(share * jnp.sqrt(jnp.maximum(divergences, LEAST))))


def of_batch(policy: Policy, params: Params, behaviour: Params, batch: Batch, discount: float) -> Surrogate:
    """The surrogate of a batch drawn with `behaviour`."""
    mask, coefficient = batch.trajectory.mask, batch.scale * batch_coefficients(batch, discount)
    value = jnp.sum(clipped(log_ratios(policy, params, behaviour, batch)) * coefficient)
    return Surrogate(value / len(mask), jnp.sum(mask) / len(mask), jnp.max(jnp.abs(coefficient)))


def divergence_of_batch(outputs: Outputs, params: Params, other: Params, batch: Batch) -> Divergence:
    """KL(pi_other || pi_params) in the states of a batch; for `outputs` see `distributions.outputs_of`."""

    def each(observation: jax.Array) -> jax.Array:
        return distributions.divergence(outputs(other, observation), outputs(params, observation))

    return _mean_divergence(jax.vmap(jax.vmap(each))(batch.trajectory.observation), batch.trajectory.mask)


def of_tables(log_pi: jax.Array, log_behaviour: jax.Array, behaviour: Tables) -> Surrogate:
    """The exact surrogate from log pi(a|s) of both policies, (S, A), and the tables of the behaviour."""
    worth = behaviour.occupancy[:, None] * behaviour.probabilities * behaviour.advantages
    value = jnp.sum(clipped(log_pi - log_behaviour) * worth)
    return Surrogate(value, jnp.sum(behaviour.occupancy), jnp.max(jnp.abs(behaviour.advantages)))


def divergence_of_tables(log_pi: jax.Array, log_other: jax.Array, occupancy: jax.Array) -> Divergence:
    """KL(pi_other || pi) of tables of log probabilities, (S, A), in states visited as `occupancy`, (S,), says."""
    return _mean_divergence(jnp.sum(jnp.exp(log_other) * (log_other - log_pi), axis=1), occupancy)

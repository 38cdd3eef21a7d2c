"""A noisy quadratic `Problem`: the mathematics of every algorithm with no reinforcement learning in the way.

    J_i(th) = -1/2 (th - c_i)' A_i (th - c_i),     g_i(xi|th) = grad J_i(th) + sigma xi,   xi ~ N(0, I)

The noise does not depend on th, so every importance weight is 1 and Lambda = -A_i v exactly.

With this noise alone the correction of momentum, g(xi|th') - g(xi|th), has no noise at all, which no real problem grants.
With `curvature_noise` s a draw sees A_i + s diag(z) instead of A_i, z ~ N(0, I): E |s diag(z) v|^2 = s^2 |v|^2, so s is the
Lipschitz constant, in mean square, of g's noise. Weights are still 1, and Lambda is that draw's difference of gradients.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpg.gradients.importance import Weights
from fedpg.problem import Evaluation, Problem, Usage


class Bowl(NamedTuple):
    """One agent: its optimum and its curvature.

    Attributes:
        curvature: A_i, (d, d), positive definite.
        centre: c_i, (d,).
    """

    curvature: jax.Array
    centre: jax.Array


class Draw(NamedTuple):
    """A sample: its agent, with the curvature of this draw, and its noise, (d,)."""

    bowl: Bowl
    noise: jax.Array


def bowls(key: jax.Array, agents: int, heterogeneity: float, dimension: int = 4) -> Bowl:
    """N random bowls, leading axis N; centres and curvatures differ by `heterogeneity`, identical at 0."""
    centre_key, curvature_key, common_key = jax.random.split(key, 3)
    centre = heterogeneity * jax.random.normal(centre_key, (agents, dimension)) + jax.random.normal(common_key, (dimension,))
    steepness = jnp.exp(heterogeneity * jax.random.normal(curvature_key, (agents, dimension)))
    return Bowl(jax.vmap(jnp.diag)(steepness), centre)


def quadratic(dimension: int = 4, noise: float = 0.0, curvature_noise: float = 0.0) -> Problem:
    """The problem for `Bowl` agents, whose params are a vector: J_i and its gradient are known exactly.

    Args:
        dimension: d, the length of the vector.
        noise: sigma, the deviation of every entry of a sampled gradient.
        curvature_noise: s, how much the curvature differs between samples.
    """

    def sample(key: jax.Array, params: jax.Array, bowl: Bowl, memory: tuple[()]) -> tuple[Draw, tuple[()]]:
        if curvature_noise:
            z = jax.random.normal(jax.random.fold_in(key, 1), (dimension,))
            bowl = bowl._replace(curvature=bowl.curvature + curvature_noise * jnp.diag(z))
        return Draw(bowl, jax.random.normal(key, (dimension,))), memory

    def gradient(draw: Draw, params: jax.Array) -> jax.Array:
        return -draw.bowl.curvature @ (params - draw.bowl.centre) + noise * draw.noise

    def evaluate(key: jax.Array, params: jax.Array, bowl: Bowl) -> Evaluation:
        slope = -bowl.curvature @ (params - bowl.centre)
        value = 0.5 * (params - bowl.centre) @ slope
        return Evaluation(value, value, slope)

    one = jnp.ones(())
    return Problem(
        init_params=lambda key: jnp.zeros(dimension),
        init_memory=lambda: (),
        sample=sample,
        gradient=gradient,
        usage=lambda draw: Usage(jnp.ones((), int), jnp.ones((), int), jnp.zeros(())),
        evaluate=evaluate,
        project=lambda params: params,
        weighted_gradient=lambda draw, params, behaviour: (gradient(draw, params), Weights(one, one, one, one)),
        hessian_vector=lambda draw, params, vector: -draw.bowl.curvature @ vector,
    )

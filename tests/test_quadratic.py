"""The quadratic problem: its gradient is that of its objective, its Hessian-vector product exact."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.quadratic import Bowl, bowls, quadratic

KEY = jax.random.key(0)


def bowl() -> Bowl:
    """A curvature that is not diagonal."""
    root = np.random.default_rng(1).normal(size=(4, 4))
    return Bowl(jnp.asarray(root @ root.T + np.eye(4)), jnp.array([1.0, -2.0, 0.5, 3.0]))


def test_gradient_is_that_of_the_objective() -> None:
    """Without noise g = grad J by autodiff, and `evaluate` reports both; J = -1/2 (th-c)'A(th-c)."""
    problem, agent, params = quadratic(4), bowl(), jnp.array([0.3, 0.1, -1.0, 2.0])
    sample, _ = jax.jit(problem.sample)(KEY, params, agent, problem.init_memory())
    slope = jax.jit(jax.grad(lambda p: problem.evaluate(KEY, p, agent).objective))(params)
    np.testing.assert_allclose(problem.gradient(sample, params), slope, rtol=1e-5)
    np.testing.assert_allclose(problem.evaluate(KEY, params, agent).gradient, slope, rtol=1e-5)
    away = np.asarray(params - agent.centre)
    expected = -0.5 * away @ np.asarray(agent.curvature) @ away
    np.testing.assert_allclose(problem.evaluate(KEY, params, agent)[:2], expected, rtol=1e-5)
    np.testing.assert_allclose(problem.evaluate(KEY, agent.centre, agent).gradient, 0.0, atol=1e-6)


def test_hessian_vector_is_exact() -> None:
    """Lambda is the difference of gradients along v, of any length, at any params."""
    problem, agent = quadratic(4, noise=0.7), bowl()
    params, vector = jnp.ones(4), jnp.array([2.0, -1.0, 0.0, 5.0])
    sample, _ = problem.sample(KEY, params, agent, ())
    difference = problem.gradient(sample, params + vector) - problem.gradient(sample, params)
    np.testing.assert_allclose(problem.hessian_vector(sample, params, vector), difference, rtol=1e-4)


def test_noise_has_the_given_size_and_cancels_between_params() -> None:
    """g - grad J ~ N(0, sigma^2), new with each key, the same at every params: the weight is 1."""
    problem, exact, agent, sigma = quadratic(4, noise=0.5), quadratic(4), bowl(), 0.5
    samples, _ = jax.jit(jax.vmap(lambda k: problem.sample(k, jnp.zeros(4), agent, ())))(jax.random.split(KEY, 2000))
    error = np.asarray(jax.jit(jax.vmap(lambda s: problem.gradient(s, jnp.ones(4)) - exact.gradient(s, jnp.ones(4))))(samples))
    np.testing.assert_allclose(error.mean(0), 0.0, atol=4.5 * sigma / np.sqrt(2000))
    np.testing.assert_allclose(error.std(0), sigma, rtol=0.08)
    sample = jax.tree.map(lambda x: x[0], samples)
    g, weights = problem.weighted_gradient(sample, jnp.ones(4), jnp.zeros(4))
    np.testing.assert_allclose(g, problem.gradient(sample, jnp.ones(4)))
    assert [float(x) for x in weights] == [1.0, 1.0, 1.0, 1.0]


def test_curvature_noise_is_that_of_the_gradients_difference() -> None:
    """g(xi|th') - g(xi|th) is -A v on average, errs by s |v| in mean square, and is Lambda; J knows nothing of it."""
    problem, exact, agent, s = quadratic(4, noise=0.5, curvature_noise=3.0), quadratic(4, noise=0.5), bowl(), 3.0
    params, vector = jnp.ones(4), jnp.array([2.0, -1.0, 0.0, 2.0])
    samples, _ = jax.jit(jax.vmap(lambda k: problem.sample(k, params, agent, ())))(jax.random.split(KEY, 4000))

    def difference(sample):
        return problem.gradient(sample, params + vector) - problem.gradient(sample, params)

    error = np.asarray(jax.vmap(difference)(samples)) + np.asarray(agent.curvature @ vector)
    np.testing.assert_allclose(error.mean(0), 0.0, atol=4.5 * s * 2.0 / np.sqrt(4000))
    np.testing.assert_allclose(np.sqrt(np.mean(np.sum(error**2, axis=1))), s * 3.0, rtol=0.05)
    sample = jax.tree.map(lambda x: x[0], samples)
    np.testing.assert_allclose(problem.hessian_vector(sample, params, vector), difference(sample), rtol=1e-4, atol=1e-4)
    assert problem.weighted_gradient(sample, params, params + vector)[1].total == 1.0
    np.testing.assert_array_equal(problem.evaluate(KEY, params, agent).gradient, exact.evaluate(KEY, params, agent).gradient)
    same, _ = exact.sample(jax.random.split(KEY, 4000)[0], params, agent, ())
    np.testing.assert_array_equal(sample.noise, same.noise)  # switching it on changes no other draw


@pytest.mark.parametrize("heterogeneity", [0.0, 0.5, 2.0])
def test_bowls(heterogeneity: float) -> None:
    """Identical at 0, spread further the larger the number, and always curved downwards."""
    agents = bowls(KEY, 5, heterogeneity)
    assert agents.curvature.shape == (5, 4, 4)
    assert np.linalg.eigvalsh(agents.curvature).min() > 0.0
    spread, unit = np.std(agents.centre, axis=0), np.std(bowls(KEY, 5, 1.0).centre, axis=0)
    np.testing.assert_allclose(spread, heterogeneity * unit, rtol=1e-3, atol=1e-6)
    assert (np.ptp(agents.curvature, axis=0).max() > 0) == (heterogeneity > 0)

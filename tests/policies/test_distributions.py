"""What describes a policy, and the divergence of two of them, against definitions written out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs.base import Box, Discrete
from fedpg.envs.tabular import environment
from fedpg.policies import categorical, custom, direct, gaussian, softmax
from fedpg.policies.distributions import Normal, divergence, outputs_of
from fedpg.policies.scaled import scaled
from helpers.compare import random_params
from helpers.environments import CLOCK, POINT

SMALL = environment("small", 3, 4)


@pytest.mark.parametrize(("make", "space"), [(softmax, SMALL), (direct, SMALL), (categorical, CLOCK)])
def test_logits_give_the_probabilities_of_log_prob(make, space):
    policy = make(space)
    params, seen = random_params(policy, 0), jnp.array(2) if space is SMALL else jnp.array([0.7])
    count = space.action_space.n
    logits = policy.outputs(params, seen)
    expected = jnp.array([policy.log_prob(params, seen, jnp.array(a)) for a in range(count)])
    np.testing.assert_allclose(jax.nn.log_softmax(logits), expected, atol=1e-5)
    # a custom policy has log_prob only, which is enough for discrete actions
    own = custom(policy.init, policy.act, policy.log_prob)
    np.testing.assert_allclose(outputs_of(own, Discrete(count))(params, seen), expected, atol=1e-5)
    assert outputs_of(own, Box((2,))) is None


def test_divergence_of_discrete_actions_by_hand():
    p, q = np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.3, 0.1])
    expected = sum(a * np.log(a / b) for a, b in zip(p, q, strict=True))
    np.testing.assert_allclose(divergence(jnp.log(p) + 3.0, jnp.log(q) - 1.0), expected, rtol=1e-5)


def test_divergence_of_normals_is_the_integral():
    """KL of two one-dimensional normals by the trapezoid rule; independent entries add up."""
    grid = np.linspace(-12, 12, 20001)
    p, q = (np.array([0.3, 1.1]), np.array([-0.8, -0.2])), (np.array([-0.5, 0.2]), np.array([0.4, -0.3]))

    def log_density(normal, entry):
        mean, log_std = normal[0][entry], normal[1][entry]
        return -0.5 * ((grid - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)

    integrals = [np.trapezoid(np.exp(log_density(p, i)) * (log_density(p, i) - log_density(q, i)), grid) for i in (0, 1)]
    first, second = (Normal(*map(jnp.asarray, normal)) for normal in (p, q))
    np.testing.assert_allclose(divergence(first, second), sum(integrals), rtol=1e-5)
    assert float(divergence(first, first)) == pytest.approx(0.0, abs=1e-6)


def test_the_outputs_of_gaussian_and_scaled_policies():
    policy = gaussian(POINT, hidden=(4,))
    params, seen = random_params(policy, 1), jnp.array([0.2, -1.0, 0.5])
    said = policy.outputs(params, seen)
    np.testing.assert_allclose(policy.act(jnp.zeros(2), params, seen), said.mean, atol=1e-6)
    np.testing.assert_array_equal(said.log_std, params["log_std"])
    on_scaled = scaled(policy, (3,))
    wide = on_scaled.init(jax.random.key(0))
    wide = wide._replace(inner=params, scale=wide.scale._replace(deviation=2.0 * jnp.ones(3)))
    np.testing.assert_allclose(on_scaled.outputs(wide, 2.0 * seen).mean, said.mean, atol=1e-6)
    assert scaled(custom(policy.init, policy.act, policy.log_prob), (3,)).outputs is None

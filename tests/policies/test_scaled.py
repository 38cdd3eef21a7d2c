"""A scaled policy is the policy inside on scaled observations, with a scale that gradients do not move."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import policies, trees
from fedpg.envs import family
from fedpg.errors import UserError
from fedpg.gradients.batch import weighted_gradient
from fedpg.moments import Moments
from fedpg.policies import gaussian
from fedpg.policies.scaled import Scale, scale_of, scaled
from fedpg.problem import policy_gradient
from helpers.compare import normal_like
from helpers.slide import TRACED

INNER = gaussian(TRACED, hidden=(4,))
POLICY = scaled(INNER, (2,))
SCALE = Scale(jnp.array([3.0, -1.0]), jnp.array([2.0, 0.5]))


@pytest.fixture
def params():
    return POLICY.init(jax.random.key(0))._replace(scale=SCALE)


def test_it_is_the_policy_inside_on_scaled_observations(params):
    observation, action, noise = jnp.array([4.0, -0.5]), jnp.array([0.1, 0.2]), jnp.array([0.3, -0.3])
    z = jnp.array([0.5, 1.0])
    np.testing.assert_allclose(POLICY.act(noise, params, observation), INNER.act(noise, params.inner, z), rtol=1e-6)
    np.testing.assert_allclose(POLICY.log_prob(params, observation, action), INNER.log_prob(params.inner, z, action), rtol=1e-6)


def test_an_odd_observation_is_cut(params):
    far = [POLICY.act(jnp.zeros(2), params, jnp.array([x, 0.0])) for x in (1e3, 1e9)]
    np.testing.assert_array_equal(*far)


def test_scale_of_constant_entries_is_one():
    seen = Moments(jnp.asarray(4.0), jnp.array([[5.0, 7.0]]), jnp.array([[16.0, 0.0]]))
    scale = scale_of(seen, (2,))
    assert scale.mean.tolist() == [5.0, 7.0]
    assert scale.deviation.tolist() == [2.0, 1.0]


def problem(**settings):
    return policy_gradient(TRACED, POLICY, horizon=6, discount=0.9, batch_size=4, **settings)


def test_gradients_leave_the_scale_alone_and_are_those_of_the_policy_inside(params):
    small = problem()

    @jax.jit
    def directions(params):
        sample, _ = small.sample(jax.random.key(1), params, jnp.asarray(0.5), ())
        g = small.gradient(sample, params)
        return g, small.weighted_gradient(sample, params, params)[0], small.hessian_vector(sample, params, g)

    for direction in directions(params):
        assert not any(leaf.any() for leaf in jax.tree.leaves(direction.scale))
        assert float(trees.norm_sq(direction.inner)) > 0.0


def test_a_hessian_vector_product_sees_the_scale_move(params, float64):
    """Against a difference quotient of F along a direction that moves inner params and scale at once."""
    small = problem()

    @jax.jit
    def both(params, v):
        sample, _ = small.sample(jax.random.key(1), params, jnp.asarray(0.5), ())
        ends = [weighted_gradient(POLICY, trees.add_scaled(params, h, v), params, sample, 0.9)[0].inner for h in (1e-5, -1e-5)]
        return small.hessian_vector(sample, params, v).inner, jax.tree.map(lambda up, down: (up - down) / 2e-5, *ends)

    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params)
    for x, y in zip(*map(jax.tree.leaves, both(params, normal_like(0, params))), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


def test_indices_of_states_cannot_be_scaled():
    tables = family("random-mdp")
    with pytest.raises(UserError, match="cannot be scaled"):
        policies.make("auto", tables.environment(tables.options()), scaled=True)

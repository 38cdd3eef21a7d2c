"""Environments in Python give the trajectories that the same environment traced gives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs.host import Member
from fedpg.gradients.host_rollout import host_rollouts
from fedpg.gradients.rollout import rollout
from fedpg.policies import gaussian
from helpers.compare import assert_trees_close
from helpers.slide import TRACED, SlideHost, hosted, widths

HORIZON, LANES = 12, 4
POLICY = gaussian(TRACED, hidden=(4,))


def by_host(host, keys, params, member):
    return host_rollouts(hosted(host), POLICY, HORIZON, keys, params, member)


def traced(keys, params, width):
    return jax.vmap(lambda key: rollout(TRACED, POLICY, HORIZON, key, params, width))(keys)


@pytest.fixture
def keys():
    return jax.random.split(jax.random.key(1), LANES)


def test_one_agent(keys):
    host, params = SlideHost(), POLICY.init(jax.random.key(0))
    member = Member(jnp.asarray(0), jnp.asarray(0.6))
    found = jax.jit(lambda k, p, m: by_host(host, k, p, m))(keys, params, member)
    expected = traced(keys, params, jnp.asarray(0.6))
    assert expected.mask.sum() < LANES * HORIZON, "some lane should end early, or ends are not tested"
    for name in ("reward", "mask"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-5)
    executed = np.asarray(expected.mask) > 0
    np.testing.assert_allclose(found.observation[executed], expected.observation[executed], atol=1e-5)
    np.testing.assert_allclose(found.action[executed], expected.action[executed], atol=1e-5)
    assert host.steps == int(expected.mask.sum()), "lanes that ended are not stepped"
    assert host.closed == 1


def test_agents_and_seeds_with_params_of_their_own_are_one_call_per_step(keys):
    host, calls = SlideHost(), []
    many = jax.vmap(jax.vmap(POLICY.init))(jax.random.split(jax.random.key(5), (2, 3)))
    width = jnp.tile(widths(3), (2, 1))
    member = Member(jnp.arange(6).reshape(2, 3), width)
    original = host.reset
    host.reset = lambda index, start: calls.append(index) or original(index, start)
    every = jax.jit(jax.vmap(jax.vmap(lambda p, m: by_host(host, keys, p, m))))(many, member)
    assert len(calls) == 1
    assert sorted(calls[0]) == sorted(np.repeat(np.arange(6), LANES))
    expected = jax.vmap(jax.vmap(lambda p, w: traced(keys, p, w)))(many, width)
    assert_trees_close((every.reward, every.mask), (expected.reward, expected.mask), atol=1e-5)


def test_samples_side_by_side_do_not_mix(keys):
    """Two samples that do not depend on each other: the compiler may interleave their calls."""
    host, params = SlideHost(), POLICY.init(jax.random.key(0))
    others = jax.random.split(jax.random.key(2), LANES)

    def both(params):
        return [by_host(host, k, params, Member(jnp.asarray(i), jnp.asarray(0.3))) for i, k in enumerate((keys, others))]

    for found, k in zip(jax.jit(both)(params), (keys, others), strict=True):
        np.testing.assert_allclose(found.reward, traced(k, params, jnp.asarray(0.3)).reward, atol=1e-5)


def test_without_compiling(keys):
    host, params = SlideHost(), POLICY.init(jax.random.key(0))
    with jax.disable_jit():
        found = by_host(host, keys, params, Member(jnp.asarray(0), jnp.asarray(0.3)))
    np.testing.assert_allclose(found.reward, traced(keys, params, jnp.asarray(0.3)).reward, atol=1e-5)


def test_a_lane_that_fails_has_a_reward_that_is_not_a_number(keys):
    host, params = SlideHost(), POLICY.init(jax.random.key(0))
    host.broken = {1}
    found = jax.vmap(lambda i: by_host(host, keys, params, Member(i, jnp.asarray(0.3))))(jnp.arange(2))
    assert np.isfinite(found.reward[0]).all()
    assert np.isnan(found.reward[1]).any(1).all()
    assert {event.index for event in host.events} == {1}

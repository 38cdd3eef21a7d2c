"""Projection onto the simplex with a floor, and the policy that lives there."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs.tabular import environment
from fedpg.policies import direct
from fedpg.policies.tabular import simplex_projection

project = jax.jit(simplex_projection)


@pytest.mark.parametrize("floor", [0.0, 1e-3, 0.1])
@pytest.mark.parametrize("scale", [0.1, 1.0, 50.0])
def test_rows_land_on_the_simplex_and_stay(floor: float, scale: float) -> None:
    """Rows sum to 1, no entry below the floor, and projecting again changes nothing."""
    once = project(scale * np.random.default_rng(0).normal(size=(200, 5)), floor)
    np.testing.assert_allclose(once.sum(-1), 1.0, atol=1e-4)
    assert once.min() >= np.float32(floor)
    np.testing.assert_allclose(project(once, floor), once, atol=1e-5)


@pytest.mark.parametrize("floor", [0.0, 0.05])
@pytest.mark.parametrize("point", [(0.2, 0.3, 0.5), (1.4, -0.3, 0.2), (-1.0, -2.0, -1.1), (5.0, 4.9, -7.0), (0.4, 0.4, 0.4)])
def test_nearest_point_by_brute_force(point: tuple, floor: float) -> None:
    """No point of a fine grid on the simplex is nearer, and the projection is within a grid step of the nearest."""
    ticks = np.linspace(floor, 1.0 - 2 * floor, 401)
    grid = np.array([(a, b, 1.0 - a - b) for a, b in itertools.product(ticks, ticks) if 1.0 - a - b >= floor - 1e-12])
    distance = np.linalg.norm(grid - np.array(point), axis=1)
    projected = np.asarray(project(jnp.array(point), floor))
    assert np.linalg.norm(projected - np.array(point)) <= distance.min() + 1e-5
    np.testing.assert_allclose(projected, grid[distance.argmin()], atol=0.01)


@pytest.mark.parametrize(
    ("point", "expected"),
    [((0.5, 0.5, 0.5), (1 / 3, 1 / 3, 1 / 3)), ((2.0, 0.0, 0.0), (1.0, 0.0, 0.0)), ((0.9, 0.5, -3.0), (0.7, 0.3, 0.0))],
)
def test_projections_by_hand(point: tuple, expected: tuple) -> None:
    np.testing.assert_allclose(project(jnp.array(point)), expected, atol=1e-6)


@pytest.mark.parametrize("huge", [1e6, 1e8, 1e30])
def test_a_huge_step_still_lands_on_the_simplex(huge: float) -> None:
    """An exploding direction ends at a corner, not off the simplex."""
    np.testing.assert_allclose(project(jnp.array([huge, 0.0, -huge]), 1e-3), [0.998, 0.001, 0.001], atol=1e-5)


@pytest.mark.parametrize("actions", [2, 50, 2000])
def test_direct_policy_stays_a_policy(actions: int) -> None:
    """After any step, project gives probabilities: positive, summing to 1, and uniform params are left alone."""
    policy = direct(environment("wide", 2, actions))
    params, back = policy.init(jax.random.key(0)), jax.jit(policy.project)
    np.testing.assert_allclose(back(params)["probabilities"], 1.0 / actions, rtol=1e-3)
    rows = back({"probabilities": params["probabilities"] + np.random.default_rng(0).normal(size=(2, actions))})["probabilities"]
    assert float(rows.min()) > 0.0
    np.testing.assert_allclose(rows.sum(-1), 1.0, atol=1e-3)

"""Floors: fits on made-up laws, and a measured floor beside the fixed point in closed form."""

from __future__ import annotations

import jax
import numpy as np

from fedpg.keys import Purpose, agent_key
from fedpg.paper import floors
from fedpg.quadratic import bowls


def fixed_point(curvature: np.ndarray, centre: np.ndarray, eta: float, steps: int) -> np.ndarray:
    """Where PAvg stays: mean_i [(I - eta A_i)^K - I] (theta - c_i) = 0."""
    pulls = [np.linalg.matrix_power(np.eye(4) - eta * a, steps) - np.eye(4) for a in curvature]
    return np.linalg.solve(sum(pulls), sum(pull @ c for pull, c in zip(pulls, centre, strict=True)))


def test_measured_floors_are_those_of_the_fixed_point():
    """PAvg's (beta = 1) against closed form, for every bowl and step-size; that of beta = 0.5 a quarter of it to leading order."""
    found = floors.measure(floors.BOWLS, floors.STABLE, (0.5, 1.0), rounds=150, seeds=2, root=7)
    assert found.at.shape == (2, 4, 2)
    assert found.unsettled < 1e-4
    for seed in range(2):
        with jax.enable_x64(True):
            agents = jax.tree.map(np.asarray, bowls(agent_key(7, seed, 0, 0, Purpose.AGENTS), 5, 0.5))
        for number, eta in enumerate(found.etas):
            theta = fixed_point(*agents, float(eta), floors.LOCAL_STEPS)
            slope = np.mean([-a @ (theta - c) for a, c in zip(*agents, strict=True)], axis=0)
            np.testing.assert_allclose(found.at[1, number, seed], slope @ slope, rtol=1e-4)
    np.testing.assert_allclose(found.at[0] / found.at[1], 0.25, rtol=0.1)


def test_slope_is_fitted_for_each_seed():
    x = np.array([0.1, 0.2, 0.8])
    found = floors.slope(x, np.stack([x**2, 3.0 * x**2.2], axis=1))
    np.testing.assert_allclose(found.mean, 2.1)
    assert (found.seeds, found.low < 2.0, found.high > 2.2) == (2, True, True)


def test_ratios_are_averaged_in_logarithms():
    found = floors.ratio(np.array([2.0, 8.0]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(found.mean, 4.0)
    np.testing.assert_allclose(found.high / found.mean, found.mean / found.low)
    np.testing.assert_allclose(floors.typical(np.zeros(3)).mean, 1e-300)

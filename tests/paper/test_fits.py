"""Slopes, crossings, geometric means and their intervals, on arrays with known answers."""

import numpy as np
import pytest

from fedpg.paper.fits import bootstrap, cost_of, geometric, slope, slope_per_seed

X = np.array([1.0, 3.0, 10.0, 40.0])


@pytest.mark.parametrize("power", [-1.0, 0.0, 1.5])
def test_slope_of_a_power_law(power):
    assert slope(X, 7.0 * X**power) == pytest.approx(power, abs=1e-9)


def test_slope_is_least_squares():
    """A bump in the middle of three even points moves the line up, not its slope; one at the end tilts it by half of itself."""
    x = np.array([1.0, 2.0, 4.0])
    assert slope(x, x * [1.0, 5.0, 1.0]) == pytest.approx(1.0)
    assert slope(x, x * [1.0, 1.0, 2.0]) == pytest.approx(1.5)


def test_slope_is_fitted_for_each_seed():
    x = np.array([0.1, 0.2, 0.8])
    found = slope_per_seed(x, np.stack([x**2, 3.0 * x**2.2], axis=1))
    np.testing.assert_allclose(found.mean, 2.1)
    assert (found.seeds, found.low < 2.0, found.high > 2.2) == (2, True, True)


def test_ratios_are_averaged_in_logarithms():
    found = geometric(np.array([2.0, 8.0]))
    np.testing.assert_allclose(found.mean, 4.0)
    np.testing.assert_allclose(found.high / found.mean, found.mean / found.low)
    np.testing.assert_allclose(geometric(np.zeros(3)).mean, 1e-300)


@pytest.mark.parametrize(("target", "expected"), [(0.1, 10.0), (0.5, 2.0), (3.0, 1 / 3), (1e-3, 1000.0)])
def test_cost_inverts_a_power_law_inside_and_outside(target, expected):
    assert cost_of(X, 1.0 / X, target) == pytest.approx(expected)


def test_cost_is_that_of_the_first_crossing():
    assert cost_of(X, np.array([1.0, 0.1, 0.5, 0.1]), 0.1) == pytest.approx(3.0)


def test_intervals_are_those_of_the_mean():
    """For a mean the bootstrap agrees with the normal interval, on every entry."""
    values = np.random.default_rng(3).normal(5.0, [1.0, 0.1], size=(200, 2))
    found = bootstrap(values, lambda mean: mean)
    half = 1.96 * values.std(axis=0) / np.sqrt(200)
    np.testing.assert_allclose(found.mean, values.mean(axis=0))
    np.testing.assert_allclose(found.high - found.mean, half, rtol=0.12)
    np.testing.assert_allclose(found.mean - found.low, half, rtol=0.12)
    assert found.seeds == 200


def test_seeds_are_resampled_as_wholes():
    """What all settings of a seed share cannot change a slope, however noisy it is."""
    shared = np.random.default_rng(4).lognormal(0.0, 1.0, size=(16, 1))
    found = bootstrap(shared / X**1.5, lambda mean: slope(X, mean))
    assert [found.mean, found.low, found.high] == pytest.approx([-1.5] * 3)


def test_failed_seeds_are_left_out():
    values = np.tile(1.0 / X, (5, 1))
    values[2, 1] = np.nan
    assert bootstrap(values, lambda mean: slope(X, mean))[::3] == (pytest.approx(-1.0), 4)

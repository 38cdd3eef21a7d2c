"""Slopes, crossings and their intervals, on arrays with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.paper.fits import Fit, fitted, line, power_lines, reached, slope, verdict

X = np.array([1.0, 3.0, 10.0, 40.0])


@pytest.mark.parametrize("power", [-1.0, 0.0, 1.5])
def test_slope_and_line_of_a_power_law(power: float) -> None:
    y = 7.0 * X**power
    assert slope(X, y) == pytest.approx(power, abs=1e-9)
    np.testing.assert_allclose(line(X, y, np.array([2.0, 100.0])), 7.0 * np.array([2.0, 100.0]) ** power)


def test_slope_is_least_squares() -> None:
    """A bump in the middle of three even points moves the line up, not its slope; one at the end tilts it by half of itself."""
    x = np.array([1.0, 2.0, 4.0])
    assert slope(x, x * [1.0, 5.0, 1.0]) == pytest.approx(1.0)
    assert slope(x, x * [1.0, 1.0, 2.0]) == pytest.approx(1.5)


@pytest.mark.parametrize(("target", "expected"), [(0.1, 10.0), (0.5, 2.0), (3.0, 1 / 3), (1e-3, 1000.0)])
def test_reached_inverts_a_power_law_inside_and_outside(target: float, expected: float) -> None:
    assert reached(X, 1.0 / X, target) == pytest.approx(expected)


def test_reached_takes_the_first_crossing() -> None:
    assert reached(X, np.array([1.0, 0.1, 0.5, 0.1]), 0.1) == pytest.approx(3.0)


def test_intervals_are_those_of_the_mean() -> None:
    """For a mean the bootstrap agrees with the normal interval, on every entry."""
    values = np.random.default_rng(3).normal(5.0, [1.0, 0.1], size=(200, 2))
    fit = fitted(values, lambda mean: mean)
    half = 1.96 * values.std(axis=0) / np.sqrt(200)
    np.testing.assert_allclose(fit.value, values.mean(axis=0))
    np.testing.assert_allclose(fit.high - fit.value, half, rtol=0.12)
    np.testing.assert_allclose(fit.value - fit.low, half, rtol=0.12)
    assert fit.seeds == 200


def test_seeds_are_resampled_as_wholes() -> None:
    """What all settings of a seed share cannot change a slope, however noisy it is."""
    shared = np.random.default_rng(4).lognormal(0.0, 1.0, size=(16, 1))
    fit = fitted(shared / X**1.5, lambda mean: slope(X, mean))
    assert [fit.value, fit.low, fit.high] == pytest.approx([-1.5] * 3)


def test_failed_seeds_are_left_out() -> None:
    values = np.tile(1.0 / X, (5, 1))
    values[2, 1] = np.nan
    fit = fitted(values, lambda mean: slope(X, mean))
    assert (fit.value, fit.seeds) == (pytest.approx(-1.0), 4)


@pytest.mark.parametrize(
    ("value", "low", "high", "starts"),
    [(1.55, 1.4, 1.65, "holds"), (1.65, 1.4, 1.9, "holds, but not"), (1.8, 1.75, 1.85, "does not"), (np.nan, 0.0, 9.0, "does not")],
)
def test_verdict(value: float, low: float, high: float, starts: str) -> None:
    assert verdict(Fit(value, low, high, 8), 1.5, 0.2).startswith(starts)


def test_power_lines_show_points_and_fit() -> None:
    points, fit = power_lines("ours", X, 2.0 * X**-1.0, X, X)
    assert (points.style, points.label, fit.style) == ("o", "ours", ":")
    np.testing.assert_allclose(fit.y, 2.0 / X)

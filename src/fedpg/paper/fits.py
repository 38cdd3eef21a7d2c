"""Power laws: slopes of log-log lines, with intervals over seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedpg.report.figures import Line

DRAWS = 1000
"""Bootstrap samples behind an interval."""


class Fit(NamedTuple):
    """A statistic of the mean over seeds.

    Attributes:
        value: its value, () or (...).
        low, high: its 95 % interval, by resampling seeds.
        seeds: how many.
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: int


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """The least-squares slope of log y against log x.

    >>> round(slope(np.array([1.0, 2.0, 4.0]), np.array([8.0, 4.0, 2.0])), 6)
    -1.0
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def line(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The fitted power law, evaluated `at` the given x."""
    return np.exp(np.polyval(np.polyfit(np.log(x), np.log(y), 1), np.log(at)))


def reached(cost: np.ndarray, error: np.ndarray, target: float) -> float:
    """The cost at which `error`, which falls with `cost`, comes down to `target`.

    Between two measured points, and beyond the last one, along the line through them in log-log.

    >>> cost, error = np.array([1.0, 4.0, 16.0]), np.array([1.0, 0.5, 0.25])
    >>> round(reached(cost, error, 0.5), 6), round(reached(cost, error, 0.125), 6)
    (4.0, 64.0)
    """
    below = np.flatnonzero(error <= target)
    i = np.clip(below[0] if len(below) else len(error) - 1, 1, len(error) - 1)
    (x0, x1), (y0, y1) = np.log(cost[i - 1 : i + 1]), np.log(error[i - 1 : i + 1])
    return float(np.exp(x0 + (np.log(target) - y0) * (x1 - x0) / (y1 - y0)))


def fitted(values: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray | float], draws: int = DRAWS) -> Fit:
    """`statistic` of the mean over seeds of `values` (axes: seeds first, then what `statistic` takes), with a percentile interval.

    Seeds are resampled as wholes, so whatever settings share within a seed stays shared. Failed seeds (not finite) are left out.
    """
    kept = values[np.isfinite(values).reshape(len(values), -1).all(axis=1)]
    picks = np.random.default_rng(0).integers(len(kept), size=(draws, len(kept)))
    found = np.array([statistic(kept[pick].mean(axis=0)) for pick in picks])
    low, high = np.percentile(found, [2.5, 97.5], axis=0)
    return Fit(np.asarray(statistic(kept.mean(axis=0))), low, high, len(kept))


def verdict(fit: Fit, wanted: float, tolerance: float) -> str:
    """Whether a fitted slope is the wanted one.

    >>> verdict(Fit(-0.97, -1.02, -0.93, 8), -1.0, 0.15), verdict(Fit(-0.97, -1.02, -0.8, 8), -1.0, 0.15)
    ('holds', 'holds, but not its whole interval')
    >>> verdict(Fit(-0.7, -0.8, -0.6, 8), -1.0, 0.15)
    'does not hold: 0.30 off'
    """
    off = abs(float(fit.value) - wanted)
    if not off <= tolerance:
        return f"does not hold: {off:.2f} off"
    inside = wanted - tolerance <= fit.low and fit.high <= wanted + tolerance
    return "holds" if inside else "holds, but not its whole interval"


def power_lines(label: str, x: np.ndarray, y: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None) -> list[Line]:
    """What a panel shows of a power law: the points, with their intervals if any, and the line fitted to them."""
    # matplotlib leaves labels with a leading underscore out of the legend.
    return [Line(label, x, y, low, high, style="o"), Line("_fit", x, line(x, y, x), style=":")]

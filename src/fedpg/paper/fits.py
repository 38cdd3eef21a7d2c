"""Power laws and geometric means, with intervals over seeds."""

from collections.abc import Callable

import numpy as np

from fedpg.report.statistics import Estimate, estimate

DRAWS = 1000
"""Bootstrap samples behind an interval."""


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """The least-squares slope of log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def slope_per_seed(x: np.ndarray, y: np.ndarray) -> Estimate:
    """The exponent fitted to each seed, then mean and interval over seeds; x (T,), y (T, S)."""
    return estimate(np.polyfit(np.log(x), np.log(y), 1)[0])


def geometric(values: np.ndarray) -> Estimate:
    """Geometric mean over seeds, (S,) or (S, ...), with its interval; zeros count as 1e-300."""
    found = estimate(np.log(np.maximum(values, 1e-300)))
    return Estimate(*(np.exp(value) for value in found[:3]), found.seeds)


def cost_of(cost: np.ndarray, error: np.ndarray, target: float) -> float:
    """The cost at which `error`, which falls with `cost`, comes down to `target`, along straight lines in log-log.

    >>> cost, error = np.array([1.0, 4.0, 16.0]), np.array([1.0, 0.5, 0.25])
    >>> round(cost_of(cost, error, 0.5), 6), round(cost_of(cost, error, 0.125), 6)
    (4.0, 64.0)
    """
    below = np.flatnonzero(error <= target)
    i = np.clip(below[0] if len(below) else len(error) - 1, 1, len(error) - 1)
    (x0, x1), (y0, y1) = np.log(cost[i - 1 : i + 1]), np.log(error[i - 1 : i + 1])
    return float(np.exp(x0 + (np.log(target) - y0) * (x1 - x0) / (y1 - y0)))


def bootstrap(values: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray | float], draws: int = DRAWS) -> Estimate:
    """`statistic` of the mean over seeds of `values` (axes: seeds first, then what `statistic` takes), with a percentile interval.

    Seeds are resampled as wholes, so that what settings share within a seed stays shared. Seeds that are not finite are left out.
    """
    kept = values[np.isfinite(values).reshape(len(values), -1).all(axis=1)]
    picks = np.random.default_rng(0).integers(len(kept), size=(draws, len(kept)))
    found = np.array([statistic(kept[pick].mean(axis=0)) for pick in picks])
    low, high = np.percentile(found, [2.5, 97.5], axis=0)
    return Estimate(np.asarray(statistic(kept.mean(axis=0))), low, high, len(kept))

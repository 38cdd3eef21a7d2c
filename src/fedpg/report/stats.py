"""Statistics over seeds. Never over episodes or agents: those are not independent repetitions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.stats


class Estimate(NamedTuple):
    """A mean over seeds and its 95 % confidence interval; arrays where the values were."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.1f} [{self.low:.1f}, {self.high:.1f}]"


def estimate(values: np.ndarray, level: float = 0.95) -> Estimate:
    """Mean over the first axis (seeds) with Student's t interval; one seed has no interval (it is the mean itself).

    >>> print(estimate(np.array([1.0, 2.0, 3.0, 4.0])))
    2.5 [0.4, 4.6]
    """
    values = np.asarray(values, float)
    n, mean = len(values), values.mean(axis=0)
    half = scipy.stats.t.ppf(0.5 + level / 2, n - 1) * values.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.zeros_like(mean)
    return Estimate(mean, mean - half, mean + half, n)

"""Samples against eps: the law that a method's runs obey."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedpg.paper.fits import Fit, fitted, reached, slope
from fedpg.paper.rates import Measured

SMALL = 8.0
"""Laws are fitted where eps is at most |grad J(theta_0)|^2 over this: above, no method has got anywhere yet."""


class Law(NamedTuple):
    """Samples against eps of one method.

    Attributes:
        samples: (G,).
        eps: (G,).
        slope: of log samples against log 1/eps.
        promised: the theorem's; None where it promises nothing.
        remark: what must be said beside it.
    """

    samples: np.ndarray
    eps: np.ndarray
    slope: Fit
    promised: float | None = None
    remark: str = ""


def law(run: Measured, agents: int, promised: float | None = None) -> Law:
    """Fits the runs that came below |grad J(theta_0)|^2 / SMALL, at least the three longest."""
    costs, averages = agents * run.per_agent, run.averages.T
    means, start = np.nanmean(averages, axis=0), float(run.running[0, 0, 0])
    used = slice(len(costs) - max(3, int(np.sum(means <= start / SMALL))), None)
    found = fitted(averages[:, used], lambda eps: slope(1.0 / eps, costs[used]))
    return Law(costs[used], means[used], found, promised)


def times_fewer(bold: Measured, plain: Measured) -> tuple[float, Fit]:
    """The eps of PAvg's longest run, and PAvg's samples to it over those of bold momentum."""
    count, eps = len(plain.averages), float(np.nanmean(plain.averages[-1]))
    both = np.concatenate([bold.averages, plain.averages]).T

    def ratio(means: np.ndarray) -> float:
        return reached(plain.per_agent, means[count:], eps) / reached(bold.per_agent, means[:count], eps)

    return eps, fitted(both, ratio)

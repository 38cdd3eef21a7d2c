"""Comparison of a method with PAvg on the same seeds and step-sizes.

J comes as an array (E, S): E step-sizes in rising order, S seeds with common random numbers, so that differences are paired.
A seed that failed is NaN and left out of what it would have entered.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedpg.paper import verdict
from fedpg.paper.results import Row, over_seeds, row
from fedpg.report.statistics import Estimate

PAVG = {"against": "PAvg", "comparison": "-"}


def means(objective: np.ndarray) -> np.ndarray:
    """Mean over seeds for each step-size, (E,); -inf where all seeds failed."""
    return np.nan_to_num(over_seeds(objective).mean, nan=-np.inf)


def best(objective: np.ndarray) -> int:
    """The index of the step-size with the highest mean.

    >>> best(np.array([[1.0, 1.0], [3.0, 4.0], [np.nan, 3.0]]))
    1
    """
    return int(np.argmax(means(objective)))


def first_loss(objective: np.ndarray, amount: float) -> int | None:
    """The first step-size beyond the best at which the mean has lost `amount`; None if there is none.

    >>> first_loss(np.array([[1.0], [5.0], [4.8], [3.0], [0.0]]), 1.0)
    3
    """
    mean, top = means(objective), best(objective)
    beyond = np.flatnonzero(mean[top:] <= mean[top] - amount)
    return top + int(beyond[0]) if len(beyond) else None


def loss(objective: np.ndarray, at: int) -> Estimate:
    """What step-size number `at` loses from the best one, paired."""
    return over_seeds(objective[best(objective)] - objective[at])


def at_worst(etas: np.ndarray, ours: np.ndarray, theirs: np.ndarray, **keys: Any) -> Row:
    """The lowest paired difference. The verdict is on all step-sizes: one that is clearly worse is enough to fail."""
    differences = [over_seeds(each) for each in ours - theirs]
    at = int(np.nanargmin([found.mean for found in differences]))
    return row("objective at the worst eta", differences[at], eta=float(etas[at]), verdict=verdict.not_worse(differences), **PAVG, **keys)


def at_best(etas: np.ndarray, ours: np.ndarray, theirs: np.ndarray, **keys: Any) -> Row:
    """The difference of both methods at their own best step-sizes, paired."""
    one, other = best(ours), best(theirs)
    found = over_seeds(ours[one] - theirs[other])
    steps = {"eta": float(etas[one]), "against_eta": float(etas[other])}
    return row("best objective", found, verdict=verdict.above(found), **steps, **PAVG, **keys)


def failures(found: dict[str, np.ndarray]) -> list[str]:
    """A note with the number of failed runs of each method, if there are any."""
    counted = {name: int(np.isnan(values).sum()) for name, values in found.items() if np.isnan(values).any()}
    return [f"Runs that ended in numbers that are not finite, and are left out: {counted}."] if counted else []

"""Two algorithms on the same seeds and step-sizes: is one at least as good everywhere, better at its best, and does it last longer?

J comes as an array (E, S): E step-sizes in rising order, S seeds with common random numbers, so that differences are paired.
A seed that failed is NaN and left out of what it would have entered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedpg.report.figures import Line
from fedpg.report.stats import Estimate, estimate


class Contest(NamedTuple):
    """Attributes:
    etas: step-sizes, (E,).
    ours: J of the variant, (E, S).
    theirs: J of PAvg, (E, S).
    """

    etas: np.ndarray
    ours: np.ndarray
    theirs: np.ndarray


def over_seeds(values: np.ndarray) -> Estimate:
    """Mean and interval over the seeds that did not fail; all NaN if none is left."""
    kept = values[np.isfinite(values)]
    return estimate(kept) if len(kept) else Estimate(*(np.array(np.nan),) * 3, 0)


def above(found: Estimate, bound: float) -> str:
    """Whether a mean is at least `bound`, as a verdict: undecided if its interval holds both answers."""
    return "holds" if found.low >= bound else "not resolved" if found.high >= bound else "does not hold"


def higher(found: Estimate) -> str:
    """Whether a difference is above 0, likewise; none at all is not."""
    return "holds" if found.low > 0.0 else "not resolved" if found.high > 0.0 else "does not hold"


def below(found: Estimate, bound: float) -> str:
    """Whether a mean is less than `bound`, likewise."""
    return "holds" if found.high < bound else "not resolved" if found.low < bound else "does not hold"


def means(objective: np.ndarray) -> np.ndarray:
    """Mean over seeds for each step-size, (E,); -inf where all failed."""
    return np.nan_to_num([float(over_seeds(values).mean) for values in objective], nan=-np.inf)


def best(objective: np.ndarray) -> int:
    """Which step-size has the highest mean.

    >>> best(np.array([[1.0, 1.0], [3.0, 4.0], [np.nan, 3.0]]))
    1
    """
    return int(np.argmax(means(objective)))


class Worst(NamedTuple):
    """The step-size at which the variant does worst.

    Attributes:
        at: which.
        difference: variant minus PAvg there, paired.
        verdict: whether the variant is at least as good at every step-size, up to the interval of the difference.
    """

    at: int
    difference: Estimate
    verdict: str


AT_LEAST, WITHIN = "holds", "holds within its interval"


def worst(contest: Contest) -> Worst:
    """The lowest paired difference. The verdict is on all step-sizes: one that is clearly worse is enough."""
    differences = [over_seeds(values) for values in contest.ours - contest.theirs]
    at = int(np.nanargmin([found.mean for found in differences]))
    if clear := [f"{eta:.3g}" for eta, found in zip(contest.etas, differences, strict=True) if found.high < 0.0]:
        return Worst(at, differences[at], f"does not hold (eta={', '.join(clear)})")
    return Worst(at, differences[at], AT_LEAST if differences[at].mean >= 0.0 else WITHIN)


def best_difference(contest: Contest) -> Estimate:
    """The variant at its best step-size minus PAvg at its own, paired."""
    return over_seeds(contest.ours[best(contest.ours)] - contest.theirs[best(contest.theirs)])


def first_loss(objective: np.ndarray, amount: float) -> int | None:
    """The first step-size beyond the best at which the mean has lost `amount` from its best; None if there is none.

    >>> first_loss(np.array([[1.0], [5.0], [4.8], [3.0], [0.0]]), 1.0)
    3
    """
    mean, top = means(objective), best(objective)
    beyond = np.flatnonzero(mean[top:] <= mean[top] - amount)
    return top + int(beyond[0]) if len(beyond) else None


def lost(objective: np.ndarray, at: int) -> Estimate:
    """What was lost from the best step-size to number `at`, paired."""
    return over_seeds(objective[best(objective)] - objective[at])


def line(label: str, etas: np.ndarray, objective: np.ndarray, style: str = "o-") -> Line:
    """J against eta with its interval."""
    found = [over_seeds(values) for values in objective]
    y, low, high = (np.array([float(getattr(one, name)) for one in found]) for name in ("mean", "low", "high"))
    return Line(label, np.asarray(etas), y, low, high, style)


def failures(found: dict[str, np.ndarray]) -> list[str]:
    """A note on seeds that failed, if any did; J by label."""
    counted = {label: int(np.isnan(values).sum()) for label, values in found.items() if np.isnan(values).any()}
    return [f"Runs that ended in numbers that are not finite, and are left out: {counted}."] if counted else []

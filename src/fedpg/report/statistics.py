"""Statistics over seeds. Never over episodes or agents: those are not independent repetitions."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit


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
    half = stdtrit(n - 1, 0.5 + level / 2) * values.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.zeros_like(mean)
    return Estimate(mean, mean - half, mean + half, n)


def interquartile_mean(values: np.ndarray) -> float:
    """The mean of what is left without the lowest and the highest quarter (n/4 of n values each, rounded down).

    Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice", NeurIPS 2021.

    >>> interquartile_mean(np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 700.0]))
    3.5
    """
    ordered = np.sort(values, axis=None)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def probability_of_improvement(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The chance that a run of ours is better than a run of theirs, on one task: over all pairs, a tie counts half.

    >>> probability_of_improvement(np.array([1.0, 3.0]), np.array([0.0, 1.0, 2.0, 5.0]))
    0.5625
    """
    better = np.asarray(ours)[:, None] - np.asarray(theirs)[None, :]
    return float(np.mean((better > 0) + 0.5 * (better == 0)))


def stratified(statistic: Callable[[list[np.ndarray]], float], tasks: list[np.ndarray], draws: int = 2000, level: float = 0.95) -> Estimate:
    """A statistic of several tasks' scores and its percentile bootstrap interval: seeds are drawn again within each task.

    Args:
        statistic: of a list of arrays, leading axis seeds.
        tasks: one array for each task, leading axis its seeds; what shares a seed is drawn together.
        draws: of the bootstrap; always the same ones.
        level: of the interval.

    >>> print(stratified(lambda tasks: float(np.mean(tasks)), [np.array([1.0, 1.0]), np.array([2.0, 2.0])]))
    1.5 [1.5, 1.5]
    """
    generator = np.random.default_rng(0)
    found = [statistic([each[generator.integers(len(each), size=len(each))] for each in tasks]) for _ in range(draws)]
    low, high = np.percentile(found, (50.0 - 50.0 * level, 50.0 + 50.0 * level))
    return Estimate(np.float64(statistic(tasks)), low, high, sum(len(each) for each in tasks))

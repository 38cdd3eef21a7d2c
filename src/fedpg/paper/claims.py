"""What a text claims about learning curves, and whether runs on the same seeds bear it out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.stats

from fedpg.paper.outcome import Row, row
from fedpg.paper.runs import Run
from fedpg.report.figures import Line
from fedpg.report.stats import Estimate, estimate

TOO_SHORT = "smoke: too short to judge"
PAPER_AND_OURS = [
    "Step-sizes are our presets' (docs/presets.md), the same for all beta or N. They were tuned at beta 0.2 (at 0.95 for FedHAPG-M on "
    "MuJoCo), not for each. The paper's eta (0.75, or 0.05) belongs to its code's clamped, adaptive steps and means nothing for the "
    "printed estimator.",
    "As in the paper, agents differ in where they start only (by a factor of up to 2^0.5). Unlike in its Algorithms 1 and 2, a baseline is "
    "subtracted and a local step takes a batch of trajectories.",
]
BASELINE = (
    "beta 1 of FedSVRPG-M is PAvg, the paper's baseline; of FedHAPG-M it is PAvg in expectation only (it samples between two policies and "
    "reweights)."
)
LONGER_STEP = (
    "A smaller beta can be a larger step, for two reasons that have nothing to do with variance. Where the importance weights have "
    "degenerated (effective sample size near 0), the correction vanishes and the printed FedSVRPG-M is heavy ball, g + (1-beta) u_r: up to "
    "1/beta of the step. Where they are good, u_r is still the mean along the last round's path but is corrected from the path's start, so "
    "that up to 1/beta times what the gradient changed over half a round is added to it."
)
TAIL = 3
"""Evaluations behind a run's final return."""


def height(run: Run) -> np.ndarray:
    """The mean return over the run (the area under the curve divided by its rounds), (S,)."""
    return np.trapezoid(run.total_return, run.rounds, axis=1) / (run.rounds[-1] - run.rounds[0])


def final(run: Run) -> np.ndarray:
    """The return at the end, mean of the last evaluations, (S,)."""
    return run.total_return[:, -TAIL:].mean(1)


def reached(run: Run, level: float) -> np.ndarray:
    """The round in which each seed first is at `level`, interpolated between evaluations, (S,); infinite if it never is."""

    def of_seed(y: np.ndarray) -> float:
        there = np.flatnonzero(y >= level)
        if not there.size:
            return np.inf
        until = slice(max(there[0] - 1, 0), there[0] + 1)
        return float(np.interp(level, y[until], run.rounds[until]))

    return np.array([of_seed(y) for y in run.total_return])


def verdict(
    low: float, high: float, judged: bool, yes: str = "holds", no: str = "the opposite holds", unclear: str = "no difference seen"
) -> str:
    """What the 95 % interval of a difference says of the claim that it is positive.

    >>> verdict(0.1, 0.4, True), verdict(-0.1, 0.4, True), verdict(-0.3, -0.1, True), verdict(0.1, 0.4, False)
    ('holds', 'no difference seen', 'the opposite holds', 'smoke: too short to judge')
    """
    if not judged:
        return TOO_SHORT
    return yes if low > 0 else no if high < 0 else unclear


def difference(what: str, one: np.ndarray, other: np.ndarray, judged: bool, **phrases: str) -> Row:
    """The row of the claim that `one`, (S,), is above `other` on the same seeds."""
    found = estimate(one - other)
    return row(what, found, verdict=verdict(found.low, found.high, judged, **phrases))


def best(what: str, claimed: float, values: dict[float, np.ndarray], judged: bool) -> Row:
    """The row of the claim that beta = `claimed` has the highest of all `values`, (S,) each: its lead on the best of the others."""
    rival = max((beta for beta in values if beta != claimed), key=lambda beta: values[beta].mean())
    phrases = {"yes": "holds", "no": f"does not hold: beta {rival:g} is better", "unclear": f"not told apart from beta {rival:g}"}
    return difference(f"{what}: lead of beta {claimed:g} on the best other", values[claimed], values[rival], judged, **phrases)


def jackknife(statistic: Callable[[np.ndarray], float], seeds: int) -> Estimate:
    """statistic(which seeds) on all of them, with the 95 % interval of the jackknife; for what is not a mean over seeds.

    A spread over seeds needs three of them: the jackknife leaves out one at a time.

    >>> x = np.array([1.0, 2.0, 3.0, 4.0])
    >>> print(jackknife(lambda kept: x[kept].mean(), 4), "as", estimate(x))
    2.5 [0.4, 4.6] as 2.5 [0.4, 4.6]
    """
    everyone = np.arange(seeds)
    value, without = statistic(everyone), np.array([statistic(np.delete(everyone, i)) for i in everyone])
    error = np.sqrt((seeds - 1) / seeds * np.sum((without - without.mean()) ** 2))
    half = scipy.stats.t.ppf(0.975, seeds - 1) * error
    return Estimate(value, value - half, value + half, seeds)


def spread_ratio(ones: list[Run], others: list[Run]) -> Estimate:
    """How much more the runs in `ones` scatter over seeds than those in `others`: the ratio of their standard deviations, each
    the mean over runs and evaluations after the start."""

    def log_ratio(kept: np.ndarray) -> float:
        ours, theirs = (np.mean([run.total_return[kept, 1:].std(0, ddof=1).mean() for run in runs]) for runs in (ones, others))
        return float(np.log(ours / theirs))

    seeds = len(ones[0].total_return)
    found = jackknife(log_ratio, seeds)
    return Estimate(np.exp(found.mean), np.exp(found.low), np.exp(found.high), seeds)


def line(label: str, run: Run, x: np.ndarray, style: str = "-") -> Line:
    """The curve of a run over x, (T,), with its interval over seeds."""
    found = estimate(run.total_return)
    several = found.seeds > 1
    return Line(label, x, found.mean, found.low if several else None, found.high if several else None, style)


def failures(runs: dict[str, Run]) -> list[str]:
    """A note for every run in which seeds failed."""
    lost = {name: (int(run.failed.sum()), len(run.failed)) for name, run in runs.items()}
    return [f"{name}: {n} of {seeds} seeds ended in numbers that are not finite" for name, (n, seeds) in lost.items() if n]


def weight_note(name: str, run: Run) -> str:
    """How good a run's importance weights were."""
    measured = run.ess[:, 1:]
    return f"{name}: effective sample size of the importance weights {np.nanmedian(measured):.2g} of 1 (median over seeds and evaluations)"

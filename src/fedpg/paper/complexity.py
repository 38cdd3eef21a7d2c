"""Sample complexity: trajectories of the whole federation against the eps they buy, beside the theorem's eps^(-3/2).

Runs of R rounds for a range of R, each with the steps for its R, as in `speedup`; N and K stay. eps is the mean over rounds of
|grad J(theta_r)|^2. Plain averaging (PAvg) needs eps^(-2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedpg.paper import verdict
from fedpg.paper.fits import bootstrap, cost_of, slope
from fedpg.paper.method import BETA, FEDHAPG_M, FEDSVRPG_M, FEDSVRPG_S
from fedpg.paper.rates import (
    BOLDEST,
    PROBLEMS,
    SEARCHED,
    SEARCHED_PAVG,
    Measured,
    RateProblem,
    Steps,
    grids,
    measure,
    prescriptions,
    search,
)
from fedpg.paper.results import Plot, Result, Row, Tell, line, number, row
from fedpg.report.statistics import Estimate

TITLE = "Samples against the mean |grad J|^2 they buy"
PROMISED, TOLERANCE = 1.5, 0.2
SMALL = 8.0
"""Laws are fitted where eps is at most |grad J(theta_0)|^2 over this: above, no method has got anywhere yet."""
N, K = 8, 2
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {"samples": {"quadratics": 32_768, "random MDP": 32_768}, "lengths": 4, "seeds": 8, "more": False},
    "full": {"samples": {"quadratics": 262_144, "random MDP": 262_144}, "lengths": 7, "seeds": 24, "more": True},
}


class Law(NamedTuple):
    """Samples against eps of one method, (G,) each, and the slope of log samples against log 1/eps."""

    samples: np.ndarray
    eps: np.ndarray
    slope: Estimate
    flags: tuple[str, ...] = ()


def measured(on: RateProblem, rounds: np.ndarray, seeds: int, more: bool) -> tuple[dict[str, Steps], dict[str, Measured]]:
    """Every method on one problem: with which steps, and what came of them."""
    parts = prescriptions(on.constants, N, K, rounds)
    del parts["FedSVRPG-M, eta as stated"]  # shown in `speedup` only
    programs = [(FEDSVRPG_M, parts)]
    if more:
        slow = parts["PAvg"]._replace(beta=np.full(len(rounds), BETA))
        programs = [(FEDSVRPG_M, parts | grids(on.constants, N, K, int(rounds[-1])))]
        programs += [(FEDHAPG_M, {"FedHAPG-M, bold": parts[BOLDEST]}), (FEDSVRPG_S, {FEDSVRPG_S.name: slow})]
    steps, found = {}, {}
    for method, own in programs:
        steps |= own
        found |= measure(on, method, own, N, K, seeds)
    return steps, found


def law(run: Measured) -> Law:
    """Fits the runs that came below |grad J(theta_0)|^2 / SMALL, at least the three longest."""
    costs, averages = N * run.per_agent, run.averages.T
    means, start = np.nanmean(averages, axis=0), float(run.running[0, 0, 0])
    used = slice(len(costs) - max(3, int(np.sum(means <= start / SMALL))), None)
    return Law(costs[used], means[used], bootstrap(averages[:, used], lambda eps: slope(1.0 / eps, costs[used])))


def laws(steps: dict[str, Steps], runs: dict[str, Measured]) -> dict[str, Law]:
    """The law of every method; grids are searched at the eps that the prescribed steps reach."""
    like = {SEARCHED: BOLDEST, SEARCHED_PAVG: "PAvg"}
    found = {name: law(run) for name, run in runs.items() if name not in like}
    for name in like.keys() & runs.keys():
        eps = found[like[name]].eps[:-1]  # all but the last are within reach
        best = search([(runs[name], steps[name])] * len(eps), np.full(len(eps), N), K, eps, 1.0 / eps)
        found[name] = Law(N * best.samples.mean, eps, best.slope, ("largest lambda of the grid",) if best.edge else ())
    return {name: found[name] for name in runs}


def times_fewer(bold: Measured, plain: Measured) -> tuple[float, Estimate]:
    """The eps of PAvg's longest run, and PAvg's samples to it over those of bold momentum."""
    count, eps = len(plain.averages), float(np.nanmean(plain.averages[-1]))
    both = np.concatenate([bold.averages, plain.averages]).T

    def ratio(means: np.ndarray) -> float:
        return cost_of(plain.per_agent, means[count:], eps) / cost_of(bold.per_agent, means[:count], eps)

    return eps, bootstrap(both, ratio)


def judge(on: str, name: str, found: Law) -> tuple[Row, list[Row]]:
    """The slope of one method beside the promised one, and the points it was fitted to."""
    keys = {"task": on, "method": name, "N": N, "K": K}
    certain = Estimate(found.samples, found.samples, found.samples, found.slope.seeds)
    points, flags = line("samples", certain, "eps", found.eps, **keys), found.flags
    if name in ("PAvg", SEARCHED_PAVG, FEDSVRPG_S.name):  # the theorem promises nothing for these
        return row("slope in 1/eps", found.slope, flags=("for comparison", *flags), **keys), points
    ruling = verdict.near(found.slope, PROMISED, TOLERANCE)
    if found.slope.high < PROMISED - TOLERANCE:
        ruling, flags = verdict.at_most(found.slope, PROMISED + TOLERANCE), ("better than promised", *flags)
    return row("slope in 1/eps", found.slope, published=PROMISED, verdict=ruling, flags=flags, **keys), points


def run(tell: Tell, samples: dict[str, int], lengths: int, seeds: int, more: bool) -> Result:
    """Runs the experiment.

    Args:
        tell: reports progress.
        samples: by problem, the largest N K R; smaller ones by factors of 2.
        lengths: how many R.
        seeds: repetitions.
        more: also FedHAPG-M, FedSVRPG-S, and the best of a grid of step-sizes.
    """
    rows, points, constants = [], [], {}
    for at, (problem, most) in enumerate(samples.items()):
        tell(problem, at / len(samples))
        on, rounds = PROBLEMS[problem](), np.round(most * 2.0 ** np.arange(1 - lengths, 1) / (N * K)).astype(int)
        steps, runs = measured(on, rounds, seeds, more)
        for name, found in laws(steps, runs).items():
            one, own = judge(problem, name, found)
            rows, points = [*rows, one], points + own
        eps, ratio = times_fewer(runs[BOLDEST], runs["PAvg"])
        keys = {"task": problem, "method": "PAvg", "against": BOLDEST, "comparison": "/", "eps": number(f"{eps:.2g}")}
        rows.append(row("samples", ratio, verdict=verdict.above(ratio, 1.0), **keys))
        constants[problem] = on.constants._asdict() | {"least effective share of weights": float(runs[BOLDEST].ess.min())}
    given = {"quantity": "samples", "x": "eps", "x_log": True, "y_log": True, "fit": True, "slope": -PROMISED}
    plots = [Plot(title=problem, where={"task": problem, "against": ""}, **given) for problem in samples]
    return Result(rows=rows, points=points, plots=plots, settings={"N": N, "K": K, "constants": constants})

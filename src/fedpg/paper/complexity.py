"""Sample complexity: trajectories of the whole federation against the eps they buy, beside the theorem's eps^(-3/2).

Runs of R rounds for a range of R, each with the steps for its R, as in `speedup`; N and K stay. eps is the mean over rounds of |grad
J(theta_r)|^2. Plain averaging (PAvg) needs eps^(-2). *bold* and *best of ... steps* are those of `speedup`. On the MDP noise vanishes as
the policy turns deterministic: there the bound need not be tight.
"""

from typing import Any, NamedTuple

import numpy as np

from fedpg.paper import verdict
from fedpg.paper.fits import bootstrap, cost_of, slope
from fedpg.paper.method import BETA, CALM, CALM_VR, FEDHAPG_M, FEDSVRPG_M
from fedpg.paper.rates import BOLDEST, PROBLEMS, Measured, RateProblem, measure, prescriptions
from fedpg.paper.results import Figure, Plot, Result, Row, Tell, line, number, row
from fedpg.report.statistics import Estimate

TITLE = "Samples against the mean |grad J|^2 they buy"
PROMISED, TOLERANCE = 1.5, 0.2
SMALL = 8.0
"""Laws are fitted where eps is at most |grad J(theta_0)|^2 over this: above, no method has got anywhere yet."""
N, K = 8, 2
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {"samples": {"quadratics": 32_768, "random MDP": 32_768}, "lengths": 4, "seeds": 8, "more": False},
    "full": {"samples": {"quadratics": 262_144, "random MDP": 262_144}, "lengths": 6, "seeds": 12, "more": True},
}


class Law(NamedTuple):
    """Samples against eps of one method, (G,) each, and the slope of log samples against log 1/eps."""

    samples: np.ndarray
    eps: np.ndarray
    slope: Estimate


def measured(on: RateProblem, rounds: np.ndarray, seeds: int, more: bool) -> dict[str, Measured]:
    """Every method on one problem."""
    parts = prescriptions(on.constants, N, K, rounds)
    del parts["FedSVRPG-M, eta as stated"]  # shown in `speedup` only
    found = measure(on, FEDSVRPG_M, parts, N, K, seeds)
    if more:
        slow = parts["PAvg"]._replace(beta=np.full(len(rounds), BETA))
        found |= measure(on, FEDHAPG_M, {"FedHAPG-M, bold": parts[BOLDEST]}, N, K, seeds)
        found |= measure(on, CALM, {CALM.name: slow}, N, K, seeds)
        found |= measure(on, CALM_VR, {CALM_VR.name: parts[BOLDEST]._replace(beta=slow.beta)}, N, K, seeds)
    return found


def law(run: Measured) -> Law:
    """Fits the runs that came below |grad J(theta_0)|^2 / SMALL, at least the three longest."""
    costs, averages = N * run.per_agent, run.averages.T
    means, start = np.nanmean(averages, axis=0), float(run.running[0, 0, 0])
    used = slice(len(costs) - max(3, int(np.sum(means <= start / SMALL))), None)
    return Law(costs[used], means[used], bootstrap(averages[:, used], lambda eps: slope(1.0 / eps, costs[used])))


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
    points = line("samples", certain, "eps", found.eps, **keys)
    if name in ("PAvg", CALM.name):  # the theorem promises nothing for these
        return row("slope in 1/eps", found.slope, flags=("for comparison",), **keys), points
    ruling = verdict.near(found.slope, PROMISED, TOLERANCE)
    return row("slope in 1/eps", found.slope, published=PROMISED, verdict=ruling, **keys), points


def run(tell: Tell, samples: dict[str, int], lengths: int, seeds: int, more: bool) -> Result:
    """Runs the experiment.

    Args:
        samples: by problem, the largest N K R; smaller ones by factors of 2.
        lengths: how many R.
        more: also FedHAPG-M, CALM and CALM-VR.
    """
    rows, points, constants = [], [], {}
    for at, (problem, most) in enumerate(samples.items()):
        tell(problem, at / len(samples))
        on, rounds = PROBLEMS[problem](), np.round(most * 2.0 ** np.arange(1 - lengths, 1) / (N * K)).astype(int)
        runs = measured(on, rounds, seeds, more)
        for name, found in runs.items():
            one, own = judge(problem, name, law(found))
            rows, points = [*rows, one], points + own
        eps, ratio = times_fewer(runs[BOLDEST], runs["PAvg"])
        keys = {"task": problem, "method": "PAvg", "against": BOLDEST, "comparison": "/", "eps": number(f"{eps:.2g}")}
        rows.append(row("samples", ratio, verdict=verdict.above(ratio, 1.0), **keys))
        constants[problem] = on.constants._asdict() | {"least effective share of weights": float(runs[BOLDEST].ess.min())}
    return Result(rows=rows, points=points, settings={"N": N, "K": K, "constants": constants})


def figures(result: Result) -> list[Figure]:
    """Samples against eps, with fitted power laws. Searched step-sizes are left out."""
    look = {"quantity": "samples", "x": "eps", "x_scale": "log", "y_scale": "log", "fit": True, "slope": -PROMISED}
    plots = [Plot(title=problem, where={"task": problem}, y_label="samples of the federation", **look)
             for problem in dict.fromkeys(row.task for row in result.points)]  # fmt: skip
    return [Figure(plots=plots, rows=[point for point in result.points if "best of" not in point.method], height=3.2)]

"""Linear speed-up: trajectories per agent until the mean over rounds of |grad J(theta_r)|^2 is eps, for N agents.

For every N and a range of R the printed FedSVRPG-M runs R rounds with the beta, lambda, eta and B of its theorem for (N, K, R), with the
problem's own L, S, sigma and Delta. The theorem then promises

    1/R sum_r |grad J(theta_r)|^2  <~  (S Delta sigma / (N K R))^(2/3)  +  L Delta / R

so that K R falls as 1/N while the first term is the larger one. *bold*: lambda is 12 times larger, without the proof's worst-case factors.
*eta as stated*: eta from the theorem's three conditions alone, without the fourth that its proof uses; this leaves a bias in u that slows
few agents down. *best of ... steps*: the fewest trajectories over a grid of beta and lambda, chosen afterwards; this search is no longer
run.
"""

from typing import Any, NamedTuple

import numpy as np

from fedpg.paper import verdict
from fedpg.paper.fits import bootstrap, cost_of, slope
from fedpg.paper.method import FEDSVRPG_M
from fedpg.paper.rates import BOLDEST, PROBLEMS, Measured, Steps, measure, prescriptions
from fedpg.paper.results import Figure, Plot, Result, Tell, changed, line, number, row, select
from fedpg.report.statistics import Estimate

TITLE = "Trajectories per agent to a given mean |grad J|^2, for N agents"
PROMISED, TOLERANCE, K = -1.0, 0.15, 2
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {"agents": (1, 4, 16), "samples": {"quadratics": 16_384}, "lengths": 3, "seeds": 8},
    "full": {"agents": (1, 2, 4, 8, 16, 32, 64), "samples": {"quadratics": 196_608, "random MDP": 131_072}, "lengths": 6, "seeds": 24},
}


class Reach(NamedTuple):
    """Trajectories per agent to one eps for every N, the slope of the line through them, and remarks."""

    eps: float
    agents: tuple[int, ...]
    trajectories: Estimate
    slope: Estimate
    flags: tuple[str, ...] = ()


def reach(agents: tuple[int, ...], runs: list[Measured], steps: list[Steps], length: int) -> Reach:
    """Trajectories per agent until the average is what the fewest agents reach in run number `length`; `runs` by N, then by R."""
    costs, averages = np.stack([run.per_agent for run in runs]), np.stack([run.averages.T for run in runs], axis=1)  # (n, G), (S, n, G)
    eps = float(np.nanmean(averages[:, 0, length]))

    def needed(means: np.ndarray) -> np.ndarray:
        return np.array([cost_of(cost, mean, eps) for cost, mean in zip(costs, means, strict=True)])

    found = bootstrap(averages, needed)
    nearest = np.abs(np.log(costs) - np.log(found.mean)[:, None]).argmin(axis=1)
    outside = any(each.capped[g] for each, g in zip(steps, nearest, strict=True))
    fitted = bootstrap(averages, lambda means: slope(np.array(agents), needed(means)))
    return Reach(eps, agents, found, fitted, ("outside the regime for some N",) if outside else ())


def run(tell: Tell, agents: tuple[int, ...], samples: dict[str, int], lengths: int, seeds: int) -> Result:
    """Runs the experiment.

    Args:
        agents: every N.
        samples: by problem, the largest N K R; smaller ones by factors of 2.
        lengths: how many R for each N.
    """
    rows, points, constants = [], [], {}

    def add(name: str, found: Reach, judged: bool) -> None:
        keys = {"task": on.name, "method": name, "K": K, "eps": number(f"{found.eps:.2g}")}
        ruling = {"published": PROMISED, "verdict": verdict.near(found.slope, PROMISED, TOLERANCE)} if judged else {}
        rows.append(row("slope in N", found.slope, flags=found.flags if judged else ("for comparison", *found.flags), **keys, **ruling))
        points.extend(line("trajectories per agent", found.trajectories, "N", found.agents, **keys))

    for at, (problem, most) in enumerate(samples.items()):
        on, parts, runs = PROBLEMS[problem](), [], []
        for number_of, count in enumerate(agents):
            tell(f"{problem}, N = {count}", (at + number_of / len(agents)) / len(samples))
            rounds = np.maximum(1, np.round(most * 2.0 ** np.arange(1 - lengths, 1) / (count * K))).astype(int)
            parts.append(prescriptions(on.constants, count, K, rounds))
            runs.append(measure(on, FEDSVRPG_M, parts[-1], count, K, seeds))
        for name in parts[0]:
            # The bold steps also at a large eps, where the theorem promises no speed-up for many agents.
            for length in (-2, 1) if name == BOLDEST and lengths > 4 else (-2,):
                found = reach(agents, [run[name] for run in runs], [steps[name] for steps in parts], length)
                add(name, found, name != "PAvg" and length == -2)
        least = min(float(run[name].ess.min()) for run in runs for name in run if name != "PAvg")
        constants[problem] = on.constants._asdict() | {"least effective share of weights": least}
    return Result(rows=rows, points=points, settings={"K": K, "constants": constants})


def figures(result: Result) -> list[Figure]:
    """The federation's trajectories over those of a single agent: 1 is a linear speed-up. Searched step-sizes are left out."""
    rows, problems = list(result.points), list(dict.fromkeys(point.task for point in result.points))
    for problem, method in dict.fromkeys((point.task, point.method) for point in result.points):
        found = select(result.points, task=problem, method=method)
        own = select(found, eps=min(point.eps for point in found))  # where the theorem promises a speed-up
        (one,) = [point.mean for point in own if point.N == 1]
        rows += [changed(point, point.N / one, quantity="cost") for point in own if "best of" not in method]
    look = {"x": "N", "x_scale": "log", "quantity": "cost", "guides": (1.0,)}
    plots = [Plot(title=problem, where={"task": problem}, y_label="trajectories of N agents / of one", **look) for problem in problems]
    return [Figure(plots=plots, rows=rows, columns=len(problems), height=3.0)]

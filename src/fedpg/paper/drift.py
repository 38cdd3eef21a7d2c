"""Many local steps on agents that conflict: J of every method at its best step-sizes for each K, and where it settles without noise.

Rewards of the five agents conflict over two orders of magnitude. Every method tries every eta of a grid, PAvg with four ratios
lambda / (eta K) and the others with two, on tuning seeds; other seeds are reported at the best setting. CALM is not inferior if it is
behind the best rival by less than 2 % of that rival's gain. The width is the range of eta, in decades, within 2 % of the best gain.
In figures the dashed lines are PAvg's best J and the margin below it; bands are intervals of J over the tuning seeds.
"""

import dataclasses
from typing import Any

import msgspec
import numpy as np

from fedpg.paper import fixed_points
from fedpg.paper.compare import ENTRANTS, compare, eta_plot, in_percent
from fedpg.paper.fixed_points import DOORS, QUADRATICS
from fedpg.paper.method import CALM, FEDHAPG_M, FEDSVRPG_M, METHODS, PAVG, Method
from fedpg.paper.results import Figure, Plot, Result, Tell, select
from fedpg.paper.task import Task

TITLE = "Many local steps on agents that conflict"
CONFLICT = Task("conflict")
PRINTED = (FEDSVRPG_M, FEDSVRPG_M.but("FedSVRPG-M, truncated", importance="truncated"), FEDHAPG_M)
"""The paper's algorithms, at MANY local steps only."""
VARIANTS = tuple(CALM.but(f"CALM, beta {beta:g}, rho {rate:g}", {"beta": beta, "server_rate": rate})
                 for beta, rate in ((0.05, 0.4), (0.5, 0.4), (1.0, 0.4), (0.2, 0.2), (0.2, 0.7), (0.2, 1.0)))  # fmt: skip
"""CALM at other settings of its two knobs, at MANY local steps only."""
MANY = 32
ROOTS = 3, 0
"""Of the tuning seeds and of the reported ones."""
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "rounds": 60, "tuning": 4, "seeds": 8, "etas": (0.01, 0.0316, 0.1), "local_steps": (MANY,),
        "methods": (PAVG, METHODS["SCAFFOLD"], CALM), "more": (), "rest": {"rounds": 400, "seeds": 4, "betas": (0.2,), "steps": (8,)},
    },
    "full": {
        "rounds": 100, "tuning": 8, "seeds": 48, "etas": tuple(np.logspace(-3, -0.5, 8)), "local_steps": (1, 8, MANY, 64),
        "methods": ENTRANTS, "more": PRINTED + VARIANTS,
        "rest": {"rounds": 1500, "seeds": 8, "betas": (0.05, 0.2, 0.5), "steps": (2, 8, 32)},
    },
}  # fmt: skip


def run(
    tell: Tell, rounds: int, tuning: int, seeds: int, etas: tuple[float, ...], local_steps: tuple[int, ...], methods: tuple[Method, ...],
    more: tuple[Method, ...], rest: dict[str, Any],
) -> Result:  # fmt: skip
    """Runs the experiment.

    Args:
        rounds: R.
        tuning, seeds, etas: see `compare`.
        local_steps: every K.
        methods: compared at every K.
        more: methods that also run at K = MANY.
        rest: sizes of the runs with exact gradients, see `fixed_points.measured`.
    """
    rows, points = [], []
    for number, k in enumerate(local_steps):
        task = dataclasses.replace(CONFLICT, local_steps=k, rounds=rounds)
        entrants = methods + more if k == MANY else methods
        done = 0.8 * number / len(local_steps)
        found, drawn = compare(
            task,
            np.array(etas),
            tuning=tuning,
            seeds=seeds,
            roots=ROOTS,
            methods=entrants,
            tell=lambda what, done=done, k=k: tell(f"{what}, K={k}", done),
        )
        rows, points = rows + found, points + drawn
    for place in (QUADRATICS, DOORS):
        tell(f"exact gradients on {place.task.name}", 0.8 if place is QUADRATICS else 0.9)
        rows += fixed_points.measured(place, **rest)
    return Result(rows=rows, points=points, settings={"roots": ROOTS})


def figures(result: Result) -> list[Figure]:
    """For each K all methods against eta; and where exact gradients settle if everyone takes part."""
    found, named = [], [method.name for method in ENTRANTS]
    for k in dict.fromkeys(point.K for point in result.points):
        _, points = in_percent(select(result.rows, quantity="best objective", K=k), select(result.points, K=k))
        shown = {f"K-{k}": named}
        if select(points, method=PRINTED[0].name):
            shown["printed"] = [PAVG.name, *(method.name for method in PRINTED)]
        for suffix, methods in shown.items():
            plot = eta_plot(f"K = {k}", K=k, method=methods)
            found.append(Figure(plots=[plot], rows=points, suffix=suffix, columns=1, height=3.4))
    whole = [msgspec.structs.replace(row, method=f"{row.method}, beta {row.beta:g}" if row.beta else row.method)
             for row in select(result.rows, quantity="gradient at rest", flags=[""])]  # fmt: skip
    order, look = tuple(dict.fromkeys(row.method for row in whole)), {"names": "method", "series": ("K",), "x_scale": "log"}
    plots = [Plot(title=task, quantity="gradient at rest", where={"task": task}, order=order, **look)
             for task in dict.fromkeys(row.task for row in whole)]  # fmt: skip
    return [*found, Figure(plots=plots, rows=whole, suffix="rest", height=2.8)]

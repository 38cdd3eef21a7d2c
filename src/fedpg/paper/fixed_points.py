"""Where algorithms settle with exact gradients and a constant step-size: |grad J|^2 at the fixed point.

At a fixed point u = 0, so the server's step-size does not matter and is chosen to get there fast. For PAvg and the printed FedSVRPG-M
(at every beta > 0) the floor is (eta (K-1)/2)^2 |mean H_i g_i|^2 to leading order. For CALM and SCAFFOLD it is 0.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from fedpg.algorithms.selection import EVERYONE, Participation
from fedpg.paper import verdict
from fedpg.paper.fits import geometric, slope_per_seed
from fedpg.paper.method import CALM, FEDSVRPG_M, METHODS, PAVG, Method
from fedpg.paper.results import Row, row
from fedpg.paper.task import Task, measure

TOLERANCE, EXACT, LEAST = 0.1, 1e-20, 1e-40
"""What higher orders of eta K may add to an exponent; |grad J|^2 below this is exact; and what 0 is taken for."""
PART = Participation(0.3)
MANY = 10
"""Agents of the quadratics, three of which take part in a round where only some do."""


class Place(NamedTuple):
    """A task with a stationary point in its interior, four eta K small enough for the leading order, and the server's step-size."""

    task: Task
    paths: tuple[float, ...]
    global_lr: float


QUADRATICS = Place(Task("quadratics", "quadratics", MANY, 0.5, exact=True), (0.008, 0.016, 0.032, 0.064), 0.3)
DOORS = Place(Task("doors", "doors", 3, exact=True), (0.1, 0.2, 0.4, 0.8), 5.0)


def settle(
    place: Place, method: Method, local_steps: int, *, rounds: int, seeds: int, beta: float | None = None,
    participation: Participation = EVERYONE,
) -> np.ndarray:  # fmt: skip
    """|grad J|^2 after `rounds` for each eta K of the place, (E, S)."""
    task, etas = dataclasses.replace(place.task, local_steps=local_steps), np.array(place.paths) / local_steps
    given = {} if beta is None else {"beta": beta}
    found = measure(
        task, method, {"local_lr": etas}, seeds=seeds, rounds=[rounds], global_lr=place.global_lr, participation=participation, **given
    )
    return found.grad_norm_sq[..., -1]


def measured(place: Place, *, betas: tuple[float, ...], steps: tuple[int, ...], rounds: int, seeds: int) -> list[Row]:
    """The rows of one task: floors of PAvg, FedSVRPG-M, SCAFFOLD and CALM at the largest eta K, for each K and each beta of CALM."""
    rows, sizes = [], {"rounds": rounds, "seeds": seeds}
    for k in steps:
        keys = {"task": place.task.name, "K": k}
        plain = settle(place, PAVG, k, **sizes)
        exponent = slope_per_seed(np.array(place.paths), plain)
        rows.append(row("exponent in eta K", exponent, method=PAVG.name, verdict=verdict.near(exponent, 2.0, TOLERANCE), **keys))
        rows.append(row("gradient at rest", geometric(plain[-1]), method=PAVG.name, **keys))
        cases = [(FEDSVRPG_M, 0.2, EVERYONE), (METHODS["SCAFFOLD"], None, EVERYONE)] + [(CALM, beta, EVERYONE) for beta in betas]
        if place.task.agents == MANY:
            cases += [(CALM, beta, PART) for beta in betas]
        for method, beta, who in cases:
            floor = geometric(np.maximum(settle(place, method, k, beta=beta, participation=who, **sizes)[-1], LEAST))
            ruling = verdict.below(floor, EXACT) if method is CALM else None
            flags = () if who is EVERYONE else (f"{who.share:.0%} of the agents take part in a round",)
            rows.append(row("gradient at rest", floor, method=method.name, beta=beta, verdict=ruling, flags=flags, **keys))
    return rows

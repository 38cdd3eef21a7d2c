"""Where algorithms settle with exact gradients and a constant step-size: |grad J|^2 at the fixed point.

At a fixed point u = 0, so the server's step-size does not matter and is chosen to get there fast. For the printed FedSVRPG-M the local
drift is eta k beta g_i, and beta cancels from mean g_i(theta_k) = (1-beta) grad J: the floor is PAvg's, which is
(eta (K-1)/2)^2 |mean H_i g_i|^2, at every beta > 0. For the stabilised variants it is beta^2 of that.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from fedpg.paper import verdict
from fedpg.paper.fits import geometric, slope_per_seed
from fedpg.paper.method import FEDHAPG_S, FEDSVRPG_M, FEDSVRPG_S, Method
from fedpg.paper.results import Plot, Row, line, row
from fedpg.paper.task import Task, measure
from fedpg.runs.sweep import grid

K = 8
TOLERANCE = 0.1
"""What higher orders of eta K may add to an exponent, and to a ratio as a share of it."""
VANISHED = 1e-6
"""A floor below this share of PAvg's counts as none."""
MEMORY = FEDSVRPG_S.but("FedSVRPG-S, memory", {"lookback": "memory"})
VARIANTS = (FEDSVRPG_M, FEDSVRPG_S, MEMORY, FEDSVRPG_S.but("FedSVRPG-S, sample", {"lookback": "sample"}), FEDHAPG_S)
"""FedSVRPG-S at beta = 1 is PAvg."""


class Place(NamedTuple):
    """A task with a stationary point in its interior, step-sizes small enough for the leading order, and the server's step-size."""

    task: Task
    etas: tuple[float, ...]
    global_lr: float


QUADRATICS = Place(Task("quadratics", "quadratics", 5, 0.5, exact=True), (0.001, 0.002, 0.004, 0.008), 0.3)
DOORS = Place(Task("doors", "doors", 3, exact=True), (0.0125, 0.025, 0.05, 0.1), 5.0)


class Floor(NamedTuple):
    """|grad J|^2 where a method settled.

    Attributes:
        betas: (B,).
        etas: (E,).
        at: (B, E, S).
        moved: the largest relative change over the last tenth of the run, where beta > 0.
    """

    betas: np.ndarray
    etas: np.ndarray
    at: np.ndarray
    moved: float


def settle(place: Place, method: Method, betas: tuple[float, ...], *, rounds: int, seeds: int, local_steps: int = K) -> Floor:
    """Runs to the fixed point. Step-sizes are those of K = 8: eta K is the same for another K."""
    etas = np.array(place.etas) * K / local_steps
    task = dataclasses.replace(place.task, local_steps=local_steps)
    found = measure(
        task, method, grid(beta=betas, local_lr=etas), seeds=seeds, rounds=[9 * rounds // 10, rounds], global_lr=place.global_lr
    ).grad_norm_sq.reshape(len(betas), len(etas), seeds, 2)
    moved = np.abs(found[..., 0] / np.maximum(found[..., 1], 1e-300) - 1.0)[np.array(betas) > 0]
    return Floor(np.array(betas), etas, found[..., 1], float(moved.max()))


def laws(task: str, found: dict[str, Floor]) -> list[Row]:
    """How floors grow with eta K and with beta; `found` by method, FedSVRPG-S among them."""
    stable, keys = found[FEDSVRPG_S.name], {"task": task, "K": K}
    pavg, middle = stable.at[int(np.argmax(stable.betas))], len(stable.etas) // 2
    exponent = slope_per_seed(stable.etas * K, pavg)
    rows = [row("exponent in eta K", exponent, method="PAvg", beta=1.0, verdict=verdict.near(exponent, 2.0, TOLERANCE), **keys)]
    for name, floor in found.items():
        positive, power = floor.betas > 0, 0.0 if name == FEDSVRPG_M.name else 2.0
        exponent = slope_per_seed(floor.betas[positive], floor.at[positive, middle])
        rows.append(row("exponent in beta", exponent, method=name, verdict=verdict.near(exponent, power, TOLERANCE), **keys))
        for at in {int(np.argmin(np.where(positive, floor.betas, np.inf))), int(np.argmin(floor.betas))}:
            share, beta = geometric(floor.at[at, middle] / pavg[middle]), float(floor.betas[at])
            law = verdict.near(share, beta**power, TOLERANCE * beta**power) if beta else verdict.below(share, VANISHED)
            rows.append(row("gradient at rest", share, method=name, beta=beta, against="PAvg", comparison="/", verdict=law, **keys))
    return rows


def same_path(task: str, few: Floor, many: Floor, local_steps: int) -> Row:
    """PAvg with another K at the same eta K: its floor differs by (1 - 1/K)^2 only. Both are FedSVRPG-S."""
    middle = len(few.etas) // 2
    share = geometric(many.at[int(np.argmax(many.betas)), middle] / few.at[int(np.argmax(few.betas)), middle])
    law = round(((1 - 1 / local_steps) / (1 - 1 / K)) ** 2, 3)
    keys = {"task": task, "method": "PAvg", "beta": 1.0, "K": local_steps, "against": f"PAvg, K = {K}", "comparison": "/"}
    return row("gradient at rest", share, verdict=verdict.near(share, law, TOLERANCE * law), **keys)


def points(task: str, found: dict[str, Floor]) -> list[Row]:
    """Floors against eta K at the least beta, and against beta at the middle step-size."""
    rows, keys = [], {"task": task, "K": K}
    for name, floor in found.items():
        positive, middle = np.flatnonzero(floor.betas > 0), len(floor.etas) // 2
        least = positive[np.argmin(floor.betas[positive])]
        drawn = {name: (least, float(floor.betas[least]))} if name in (FEDSVRPG_M.name, FEDSVRPG_S.name) else {}
        drawn |= {"PAvg": (int(np.argmax(floor.betas)), 1.0)} if name == FEDSVRPG_S.name else {}
        for label, (at, beta) in drawn.items():
            rows += line("gradient at rest", geometric(floor.at[at].T), "x", floor.etas * K, method=label, beta=beta, **keys)
        rows += line("gradient at rest", geometric(floor.at[positive, middle].T), "beta", floor.betas[positive], method=name, **keys)
    return rows


def measured(
    place: Place, methods: tuple[Method, ...], other_steps: tuple[int, ...], rounds: int, seeds: int, betas: tuple[float, ...]
) -> tuple[list[Row], list[Row], str]:
    """The rows and points of one task, and how still the methods stood at the end."""
    extra = {MEMORY.name: (0.0,)}  # without its own gradient it still uses its memory
    found = {method.name: settle(place, method, betas + extra.get(method.name, ()), rounds=rounds, seeds=seeds) for method in methods}
    others = {k: settle(place, FEDSVRPG_S, (1.0,), rounds=rounds, seeds=seeds, local_steps=k) for k in other_steps}
    task, moved = place.task.name, max(floor.moved for floor in (*found.values(), *others.values()))
    rows = laws(task, found) + [same_path(task, found[FEDSVRPG_S.name], floor, k) for k, floor in others.items()]
    return (
        rows,
        points(task, found),
        f"|grad J|^2 at rest on {task} changed by at most {moved:.1g} of itself over the last tenth of the run.",
    )


PLOTS = [
    Plot(title="Exact gradients, least beta", quantity="gradient at rest", x="x", where={"against": ""}, series=("method", "task"),
         x_label="eta K", x_log=True, y_log=True),
    Plot(title="Exact gradients, by beta", quantity="gradient at rest", x="beta", where={"against": "", "x": None},
         series=("method", "task"), x_log=True, y_log=True),
]  # fmt: skip

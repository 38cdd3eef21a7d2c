"""Where algorithms settle with exact gradients and a constant step-size: |grad J|^2 at the fixed point.

At a fixed point u = 0, so the server's step-size does not matter and is chosen to get there fast. For the printed FedSVRPG-M the local
drift is eta k beta g_i, and beta cancels from mean g_i(theta_k) = (1-beta) grad J: the floor is PAvg's, which is
(eta (K-1)/2)^2 |mean H_i g_i|^2, at every beta > 0. For CALM it is beta^2 of that.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from fedpg.paper import verdict
from fedpg.paper.fits import geometric, slope_per_seed
from fedpg.paper.method import CALM, FEDSVRPG_M, PAVG, Method
from fedpg.paper.results import Plot, Row, line, row
from fedpg.paper.task import Task, measure
from fedpg.runs.sweep import grid

K = 8
TOLERANCE = 0.1
"""What higher orders of eta K may add to an exponent, and to a ratio as a share of it."""


class Place(NamedTuple):
    """A task with a stationary point in its interior, step-sizes small enough for the leading order, and the server's step-size."""

    task: Task
    etas: tuple[float, ...]
    global_lr: float


QUADRATICS = Place(Task("quadratics", "quadratics", 5, 0.5, exact=True), (0.001, 0.002, 0.004, 0.008), 0.3)
DOORS = Place(Task("doors", "doors", 3, exact=True), (0.0125, 0.025, 0.05, 0.1), 5.0)


class Floor(NamedTuple):
    """|grad J|^2 where a method settled, (B, E, S), for B values of beta and E step-sizes; `before` at 9/10 of the rounds."""

    betas: np.ndarray
    etas: np.ndarray
    at: np.ndarray
    before: np.ndarray


def settle(place: Place, method: Method, betas: tuple[float, ...], *, rounds: int, seeds: int, local_steps: int = K) -> Floor:
    """Runs to the fixed point. Step-sizes are those of K = 8: eta K is the same for another K."""
    task, etas = dataclasses.replace(place.task, local_steps=local_steps), np.array(place.etas) * K / local_steps
    settings, when = grid(beta=betas, local_lr=etas), [9 * rounds // 10, rounds]
    found = measure(task, method, settings, seeds=seeds, rounds=when, global_lr=place.global_lr).grad_norm_sq
    before, at = np.moveaxis(found.reshape(len(betas), len(etas), seeds, 2), -1, 0)
    return Floor(np.array(betas), etas, at, before)


def laws(task: str, pavg: dict[int, Floor], found: dict[str, Floor]) -> list[Row]:
    """How floors grow with eta K and with beta; `pavg` by K, the others by method."""
    plain, middle = pavg[K].at[0], pavg[K].at.shape[1] // 2
    exponent = slope_per_seed(pavg[K].etas * K, plain)
    rows = [row("exponent in eta K", exponent, task=task, method="PAvg", K=K, verdict=verdict.near(exponent, 2.0, TOLERANCE))]
    for name, floor in found.items():
        power, beta = 0.0 if name == FEDSVRPG_M.name else 2.0, float(floor.betas.min())
        exponent = slope_per_seed(floor.betas, floor.at[:, middle])
        rows.append(row("exponent in beta", exponent, task=task, method=name, K=K, verdict=verdict.near(exponent, power, TOLERANCE)))
        share = geometric(floor.at[floor.betas.argmin(), middle] / plain[middle])
        keys = {"task": task, "method": name, "K": K, "beta": beta, "against": "PAvg", "comparison": "/"}
        rows.append(row("gradient at rest", share, verdict=verdict.near(share, beta**power, TOLERANCE * beta**power), **keys))
    for steps in pavg.keys() - {K}:  # at the same eta K the floor differs by (1 - 1/K)^2 only
        share, law = geometric(pavg[steps].at[0, middle] / plain[middle]), ((1 - 1 / steps) / (1 - 1 / K)) ** 2
        keys = {"task": task, "method": "PAvg", "K": steps, "against": f"PAvg, K = {K}", "comparison": "/"}
        rows.append(row("gradient at rest", share, verdict=verdict.near(share, law, TOLERANCE * law), **keys))
    return rows


def measured(place: Place, other_steps: tuple[int, ...], betas: tuple[float, ...], **sizes: int) -> tuple[list[Row], list[Row], str]:
    """The rows and points of one task, and how still the methods stood at the end; `sizes` are rounds and seeds."""
    pavg = {k: settle(place, PAVG, (1.0,), local_steps=k, **sizes) for k in (K, *other_steps)}
    found = {method.name: settle(place, method, betas, **sizes) for method in (FEDSVRPG_M, CALM)}
    points, moved, task = [], 0.0, place.task.name
    for name, floor in {"PAvg": pavg[K], **found}.items():
        moved = max(moved, float(np.abs(floor.before / floor.at - 1.0).max()))
        for beta, at in zip(floor.betas, floor.at, strict=True):
            points += line("gradient at rest", geometric(at.T), "eta", floor.etas, task=task, method=name, K=K, beta=float(beta))
    return laws(task, pavg, found), points, f"|grad J|^2 at rest on {task} changed by at most {moved:.1g} of itself over the last tenth."


def plots(betas: tuple[float, ...]) -> list[Plot]:
    """Floors against eta at the least beta and PAvg's, and against beta at the middle eta."""
    given = {"quantity": "gradient at rest", "x_log": True, "y_log": True}
    ends = {"against": "", "method": ["PAvg", FEDSVRPG_M.name, CALM.name], "beta": [min(betas), 1.0]}
    middle = {"against": "", "eta": [place.etas[len(place.etas) // 2] for place in (QUADRATICS, DOORS)]}
    return [
        Plot(title="Exact gradients, by eta", x="eta", where=ends, series=("method", "beta", "task"), **given),
        Plot(title="Exact gradients, by beta", x="beta", where=middle, series=("method", "task"), **given),
    ]

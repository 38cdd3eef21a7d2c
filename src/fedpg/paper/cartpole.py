"""Trajectories of the whole federation until CartPoles that differ strongly are balanced, for every method at its best step-size."""

import dataclasses
from typing import Any

import numpy as np

from fedpg.paper import verdict
from fedpg.paper.method import CALM, FEDSVRPG_M, METHODS, PAVG, Method
from fedpg.paper.results import Plot, Result, Row, Tell, exactly, line, over_seeds, row
from fedpg.paper.task import Task, measure
from fedpg.report.statistics import Estimate
from fedpg.runs.sweep import Curves

TITLE = "Trajectories until 95 of 100 on strongly different CartPoles"
TASK = Task("CartPole", "cartpole", 5, 2.0, horizon=100, discount=0.99, baseline="time", importance="truncated", eval_episodes=16)
GOAL, HOLD = 95.0, 3
"""The goal is reached when the mean return of HOLD evaluations in a row is GOAL of 100."""
RATIO = 0.5
"""CALM must need at most this share of PAvg's trajectories."""
ROOT = 100  # not a root that was looked at while CALM was designed (3)


SCALES: dict[str, dict[str, Any]] = {
    "smoke": {"seeds": 6, "local_steps": (32,), "etas": (1e-3,), "trajectories": 1600, "methods": (PAVG, CALM)},
    "full": {
        "seeds": 40, "local_steps": (32, 128), "etas": (1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3), "trajectories": 8960,
        "methods": (PAVG, CALM, FEDSVRPG_M, METHODS["pooled"]),
    },
}  # fmt: skip


def needed(returns: np.ndarray, trajectories: np.ndarray) -> np.ndarray:
    """Trajectories until the mean return of HOLD evaluations in a row is GOAL, (..., S) from (..., S, T); inf if never."""
    held = np.stack([returns[..., i : returns.shape[-1] - HOLD + 1 + i] for i in range(HOLD)]).mean(0) >= GOAL
    at = np.take_along_axis(trajectories, held.argmax(-1)[..., None], -1)[..., 0]
    return np.where(held.any(-1), at, np.inf)


def ratio_of_medians(ours: np.ndarray, theirs: np.ndarray, draws: int = 2000) -> Estimate:
    """median(ours)/median(theirs) and its 95 % interval, by bootstrap over seeds; a seed that never gets there counts as infinite."""
    pick = np.random.default_rng(0).integers(0, len(ours), (draws, len(ours)))
    with np.errstate(invalid="ignore"):  # inf/inf: neither gets there, which is no gain
        drawn = np.median(ours[pick], axis=1) / np.median(theirs[pick], axis=1)
        ratio = np.nan_to_num(np.median(ours) / np.median(theirs), nan=np.inf, posinf=np.inf)
    low, high = np.percentile(np.nan_to_num(drawn, nan=np.inf, posinf=np.inf), (2.5, 97.5), method="nearest")
    return Estimate(ratio, low, high, len(ours))


def judge(local_steps: int, etas: tuple[float, ...], found: dict[str, Curves]) -> tuple[list[Row], list[Row]]:
    """The rows of one K, and the points of every method's curve at its best step-size."""
    spent = {name: needed(curves.returns, curves.trajectories) for name, curves in found.items()}
    best = {name: int(np.argmin(np.median(each, axis=1))) for name, each in spent.items()}
    rows, points = [], []
    for name, curves in found.items():
        own, keys = spent[name][best[name]], {"task": TASK.name, "method": name, "K": local_steps, "eta": etas[best[name]]}
        quartiles = np.percentile(own, (25, 75), method="nearest")
        rows.append(row("trajectories to the goal", Estimate(np.median(own), *quartiles, len(own)), **keys))
        rows.append(exactly("seeds at the goal", np.isfinite(own).mean(), len(own), **keys))
        points += line("return", over_seeds(curves.returns[best[name]].T), "x", curves.trajectories[best[name]].mean(0), **keys)
    ratio = ratio_of_medians(spent[CALM.name][best[CALM.name]], spent["PAvg"][best["PAvg"]])
    keys = {"task": TASK.name, "method": CALM.name, "against": "PAvg", "comparison": "/", "K": local_steps}
    steps = {"eta": etas[best[CALM.name]], "against_eta": etas[best["PAvg"]]}
    rows.append(row("trajectories to the goal", ratio, verdict=verdict.at_most(ratio, RATIO), **keys, **steps))
    return rows, points


def run(
    tell: Tell, seeds: int, local_steps: tuple[int, ...], etas: tuple[float, ...], trajectories: int, methods: tuple[Method, ...]
) -> Result:
    """Runs the experiment; every run has at most so many `trajectories`, and is evaluated after every round."""
    rows, points, plots = [], [], []
    for at, k in enumerate(local_steps):
        found, rounds = {}, range(1, max(HOLD, trajectories // (TASK.agents * k)) + 1)
        for number, method in enumerate(methods):
            tell(f"{method.name}, {k} local steps", (at + number / len(methods)) / len(local_steps))
            task = dataclasses.replace(TASK, local_steps=k)
            found[method.name] = measure(task, method, {"local_lr": etas}, seeds=seeds, root=ROOT, rounds=rounds)
        own, drawn = judge(k, etas, found)
        rows, points = rows + own, points + drawn
        where, label = {"K": k}, "trajectories of the federation"
        plots.append(Plot(title=f"K = {k}", quantity="return", x="x", where=where, series=("method", "eta"), x_label=label))
    return Result(rows=rows, points=points, plots=plots, settings={"task": dataclasses.asdict(TASK), "root": ROOT})

"""The report: one HTML page about one or more runs, made of plain data, with nothing to load from elsewhere."""

import importlib.resources
import itertools
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpg.report.statistics import estimate, interquartile_mean, probability_of_improvement, stratified
from fedpg.report.style import DASHES, PALETTE, styles

CURVES = ("return", "return_worst", "objective", "train_return", "grad_norm_sq", "drift_sq", "ess")
"""What is drawn over the rounds, where it is known."""
MOST_POINTS = 600
"""Points of a curve; longer ones are thinned out."""
DRAWS = 1000
"""Of the bootstrap."""


class RunData(NamedTuple):
    """What the page shows of one run.

    Attributes:
        name: different from the others'.
        config: field -> value, complete.
        manifest: as in manifest.json.
        rows: the lines of metrics.jsonl.
        environments: name of a constant -> one value per agent, of those that differ; with a note.
        film: (type, data URI) of a film, or None.
    """

    name: str
    config: dict[str, Any]
    manifest: dict[str, Any]
    rows: list[dict[str, Any]]
    environments: tuple[dict[str, list[Any]], str]
    film: tuple[str, str] | None = None


class Matrix(NamedTuple):
    """Returns of policies (rows) in environments (columns); `title` says which environments."""

    title: str
    rows: list[tuple[str, list[float]]]
    columns: list[str]


def write(runs: list[RunData], path: Path, *, title: str, about: str, matrices: list[Matrix], note: str) -> Path:
    """Writes the page.

    Args:
        runs: in the order in which they are shown.
        path: the file.
        title, about: heading, and the line under it.
        matrices: policies in environments.
        note: what to say about them, or why there are none.
    """
    data = {
        "title": title,
        "about": about,
        "runs": [_run(run) | look for run, look in zip(runs, looks(runs), strict=True)],
        "improvement": improvement([final(run.rows, "return") for run in runs]),
        "environments": _environments(runs),
        "matrix": {"note": note, "parts": [{"title": m.title, "rows": _short(m.rows), "columns": m.columns} for m in matrices]},
        "videos": [{"name": run.name, "kind": run.film[0], "source": run.film[1]} for run in runs if run.film],
        "settings": settings([run.config for run in runs]),
    }
    # "<" never appears inside the JSON, so that no text can end the script that holds it.
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    page = importlib.resources.files("fedpg.report").joinpath("page.html").read_text().replace("DATA", text, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page)
    return path


def final(rows: list[dict[str, Any]], name: str) -> np.ndarray:
    """One number per seed of the last evaluation; seeds that failed are left out."""
    return np.array([value for value in rows[-1][f"{name}_per_seed"] if value is not None], float)


def looks(runs: list[RunData]) -> list[dict[str, int]]:
    """Colour and dash of each run: those of its method, unless that would not tell the runs apart."""
    methods = [str(run.config["algorithm"]) for run in runs]
    found = [
        (style.colour, style.dash)
        for style in styles([f"{method}, {run.name}" for method, run in zip(methods, runs, strict=True)]).values()
    ]
    if len(runs) > len(set(methods)) == 1 or len(set(found)) < len(runs):
        found = [(i % len(PALETTE), i // len(PALETTE) % len(DASHES)) for i in range(len(runs))]
    return [{"colour": colour, "dash": dash} for colour, dash in found]


def _run(run: RunData) -> dict[str, Any]:
    every = max(1, math.ceil(len(run.rows) / MOST_POINTS))
    rows = run.rows[::-every][::-1]  # the last one is always there
    last = run.rows[-1]
    returns = final(run.rows, "return")
    statistics = {"iqm": interquartile_mean, "median": lambda x: float(np.median(x)), "mean": lambda x: float(np.mean(x))}
    scores = {
        name: _interval(stratified(lambda t, f=f: f(t[0]), [returns], DRAWS)) if len(returns) else None for name, f in statistics.items()
    }
    worst = final(run.rows, "return_worst")
    up, down, agents = last["floats_up"], last["floats_down"], int(run.config["agents"])
    rounds = max(last["round"], 1)
    return {
        "name": run.name,
        "seeds": len(last["return_per_seed"]),
        "failed": len(last["failed_seeds"]),
        "x": {name: _short([row[name] for row in rows]) for name in ("round", "env_steps", "trajectories")}
        | {"floats": _short([row["floats_up"] + row["floats_down"] for row in rows])},
        "curves": {name: curve for name in CURVES if (curve := _curve(rows, name)) is not None},
        "agents": [_short(list(values)) for values in zip(*(row["return_per_agent"] for row in rows), strict=True)],
        "final": scores | {"worst": _interval(estimate(worst)) if len(worst) else None},
        "sent": {
            "rounds": last["round"],
            "up": up,
            "down": down,
            "per_round": (up + down) / rounds,
            "per_agent": (up + down) / rounds / agents,
            "trajectories": last["trajectories"],
            "env_steps": last["env_steps"],
            "refused": last["refused_messages"],
        },
        "weights": {
            "largest": max((row["weight_max"] for row in run.rows if row["weight_max"]), default=None),
            "mean": last["weight_mean"],
        },
        "manifest": run.manifest,
    }


def _interval(found: Any) -> list[float]:
    return [float(f"{float(value):.6g}") for value in found[:3]]


def _short(values: Any) -> Any:
    """Numbers with five digits, nested as they are; what is not finite becomes null."""
    if isinstance(values, (list, tuple)):
        return [_short(value) for value in values]
    if isinstance(values, float):
        return float(f"{values:.5g}") if math.isfinite(values) else None
    return values


def _curve(rows: list[dict[str, Any]], name: str) -> dict[str, list[Any]] | None:
    """Mean and interval over the seeds that are known in each row; None if there is nothing."""
    found = [np.array([v for v in row.get(f"{name}_per_seed") or [] if v is not None], float) for row in rows]
    if not any(len(values) for values in found):
        return None
    estimates = [estimate(values)[:3] if len(values) else (math.nan,) * 3 for values in found]
    mean, low, high = (_short([float(value) for value in column]) for column in zip(*estimates, strict=True))
    several = any(len(values) > 1 for values in found)
    return {"mean": mean, "low": low, "high": high} if several else {"mean": mean}


def improvement(scores: list[np.ndarray]) -> list[list[list[float] | None]]:
    """The probability of improvement of each run over each other, with its bootstrap interval; None without scores."""
    table: list[list[list[float] | None]] = [[None] * len(scores) for _ in scores]
    for i, j in itertools.combinations(range(len(scores)), 2):
        if len(scores[i]) and len(scores[j]):
            found = stratified(lambda tasks: probability_of_improvement(*tasks), [scores[i], scores[j]], DRAWS)
            mean, low, high = _interval(found)
            table[i][j], table[j][i] = [mean, low, high], [1.0 - mean, 1.0 - high, 1.0 - low]
    return table


def settings(configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every setting as text, one value per run, and whether the runs differ in it."""
    found = []
    for name in dict.fromkeys(itertools.chain(*configs)):
        values = [_text(config.get(name)) for config in configs]
        found.append({"name": name, "values": values, "differs": len(set(values)) > 1})
    return found


def _text(value: Any) -> str:
    """A setting as people type it."""
    if isinstance(value, float):
        return f"{value:.10g}"
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)


def _environments(runs: list[RunData]) -> list[dict[str, Any]]:
    """What the agents differ in, once for all runs with the same agents."""
    groups: dict[str, dict[str, Any]] = {}
    for run in runs:
        values, note = run.environments
        rows = [[name, _short(list(column))] for name, column in values.items()]
        group = groups.setdefault(json.dumps([rows, note]), {"names": [], "rows": rows, "note": note})
        group["names"].append(run.name)
    return list(groups.values())

"""From returns to scores, chosen step-sizes, and the rows and pictures of the `arena`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedpg.paper.outcome import Row
from fedpg.report.figures import Line, Panel
from fedpg.report.stats import Estimate, interquartile_mean, probability_of_improvement, stratified

PLAIN = "pavg"
DRAWS = 1000


class Played(NamedTuple):
    """One algorithm on one task, E step-sizes, S seeds of which the first are for choosing among those.

    Attributes:
        start: what theta_0 is worth, (S,).
        final: what the last params are, (E, S); NaN where a run failed.
        trajectories: that the federation used.
        rounds: how many.
    """

    start: np.ndarray
    final: np.ndarray
    trajectories: float
    rounds: int


class Scored(NamedTuple):
    """Attributes:
    scores: of the reported seeds at the chosen step-size, (S,).
    local_lr: the chosen one.
    edge: it is the smallest or the largest of the grid.
    """

    scores: np.ndarray
    local_lr: float
    edge: bool


def normalised(values: np.ndarray, start: np.ndarray, best: np.ndarray) -> np.ndarray:
    """0 = the first policy, 1 = `best`; a run that failed counts as the first policy.

    >>> normalised(np.array([1.0, 2.0, np.nan]), np.array([1.0, 1.0, 1.0]), np.array([3.0, 3.0, 3.0])).tolist()
    [0.0, 0.5, 0.0]
    """
    return np.nan_to_num((values - start) / np.where(best > start, best - start, np.inf), nan=0.0)


def score(
    played: dict[str, Played], local_lrs: tuple[float, ...], tuning: int, most: float | None, own: tuple[str, ...]
) -> dict[str, Scored]:
    """Scores on one task.

    Args:
        played: by algorithm.
        local_lrs: the grid, (E,).
        tuning: how many seeds are for choosing a step-size; the others are reported.
        most: what a perfect policy gets; None takes, seed by seed, the best that any algorithm found with common params.
        own: algorithms whose agents do not deploy common params.
    """
    common = [np.nanmax([*each.final, each.start], axis=0) for name, each in played.items() if name not in own]
    found = {}
    for name, each in played.items():
        best = np.max(common, axis=0) if most is None else np.full_like(each.start, most)
        scores = normalised(each.final, each.start, best)  # (E, S)
        at = int(np.argmax(scores[:, :tuning].mean(axis=1)))
        found[name] = Scored(scores[at, tuning:], local_lrs[at], at in (0, len(local_lrs) - 1))
    return found


def iqm(scores: list[np.ndarray]) -> Estimate:
    """Over tasks and seeds."""
    return stratified(lambda tasks: interquartile_mean(np.concatenate(tasks)), scores, DRAWS)


def improvement(ours: list[np.ndarray], theirs: list[np.ndarray]) -> Estimate:
    """The chance to be better, mean over tasks; both have the same seeds, which are drawn together."""
    pairs = [np.stack(pair, axis=1) for pair in zip(ours, theirs, strict=True)]
    return stratified(lambda tasks: float(np.mean([probability_of_improvement(*task.T) for task in tasks])), pairs, DRAWS)


def better(found: Estimate) -> str:
    """The verdict on a chance to be better."""
    return "better" if found.low > 0.5 else "worse" if found.high < 0.5 else "not resolved"


def _row(what: str, found: Estimate, verdict: str) -> Row:
    return Row(what, float(found.mean), float(found.low), float(found.high), found.seeds, verdict=verdict)


Board = dict[str, dict[str, Scored]]
"""Scores by task, then by algorithm."""


def rows(board: Board, exact: tuple[str, ...]) -> list[Row]:
    """The table, best first; `exact` algorithms use no trajectories."""
    entrants = list(dict.fromkeys(name for scored in board.values() for name in scored))
    overall = {name: iqm([scored[name].scores for scored in board.values() if name in scored]) for name in entrants}
    table = []
    for name in sorted(entrants, key=lambda name: -float(overall[name].mean)):
        entered = {task: scored for task, scored in board.items() if name in scored}
        label = f"{name} (no trajectories)" if name in exact else name
        where = "all tasks" if len(entered) == len(board) else " and ".join(entered)
        if len(entered) > 1:
            table.append(_row(f"{label}: IQM, {where}", overall[name], ""))
        for task, scored in entered.items():
            one = scored[name]
            chosen = f"local-lr {one.local_lr:g}" + (", at the edge of the grid" if one.edge else "")
            table.append(_row(f"{label}: IQM, {task}", iqm([one.scores]), chosen))
        if name == PLAIN or not all(PLAIN in scored for scored in entered.values()):
            continue
        parts = {where: list(entered)} | ({task: [task] for task in entered} if len(entered) > 1 else {})
        for part, tasks in parts.items():
            found = improvement([board[t][name].scores for t in tasks], [board[t][PLAIN].scores for t in tasks])
            table.append(_row(f"{label}: chance to be better than {PLAIN}, {part}", found, better(found)))
    return table


def pictures(table: list[Row], tasks: tuple[str, ...]) -> list[Panel]:
    """IQM and intervals, overall and by task, best first."""
    panels = []
    for what in ("all tasks", *tasks):
        shown = sorted((row for row in table if row.what.endswith(f": IQM, {what}")), key=lambda row: -row.ours)
        if shown:
            y, low, high = ([getattr(row, name) for row in shown] for name in ("ours", "low", "high"))
            names = [row.what.split(":")[0].replace(" (no trajectories)", "*") for row in shown]
            lines = [Line("* uses no trajectories", list(range(len(shown))), y, low, high, "o")]
            panels.append(Panel(f"Interquartile mean, {what}", "", "score", lines, places=names))
    return panels

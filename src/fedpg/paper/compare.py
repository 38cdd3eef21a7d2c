"""A fair comparison: every method at its own best step-sizes, chosen on other seeds, with the same number of trajectories.

On tuning seeds a method tries every eta of the task's grid with every ratio lambda / (eta K) that it may choose from. What is reported
comes from other seeds, at the setting that was best there.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedpg.paper import verdict
from fedpg.paper.method import CALM, HEAVY_BALL, METHODS, PAVG, Method
from fedpg.paper.results import Plot, Row, changed, exactly, line, over_seeds, row
from fedpg.paper.task import Task, measure
from fedpg.runs.sweep import Curves, grid

WITHIN = 0.02
"""The width counts the step-sizes that reach the best gain but for this share."""
MARGIN = 0.02
"""CALM is not inferior if it is behind the best rival by less than this share of that rival's gain, with 95 % confidence."""
RIVALS = (PAVG, METHODS["FedAvg-M"], METHODS["SCAFFOLD"], HEAVY_BALL, METHODS["MFPO"])
ENTRANTS = (*RIVALS, CALM)


def ratios_of(method: Method) -> tuple[float, ...]:
    """The lambda / (eta K) that a method may choose from."""
    return (1.0, 1.1, 1.5, 2.0) if method is PAVG else (1.0, 1.5) if method in ENTRANTS else (1.0,)


def settings_of(method: Method, etas: np.ndarray, local_steps: int) -> dict[str, np.ndarray]:
    """Every eta with every ratio, the eta varying fastest."""
    found = grid(ratio=ratios_of(method), local_lr=etas)
    return {"local_lr": found["local_lr"], "global_lr": found["ratio"] * found["local_lr"] * local_steps}


class Tuned(NamedTuple):
    """The best setting of a method on the tuning seeds.

    Attributes:
        eta, ratio: the setting; `at_edge` if eta is the smallest or the largest of the grid.
        score: mean over seeds.
        width: decades of eta around the best one, at its ratio, that lose at most WITHIN of its gain.
        by_eta: scores at the best ratio, (E, S).
    """

    eta: float
    ratio: float
    at_edge: bool
    score: float
    width: float
    by_eta: np.ndarray


def tune(scores: np.ndarray, etas: np.ndarray, ratios: tuple[float, ...], start: float) -> Tuned:
    """The best of the settings, from scores (ratios, E, S), higher is better; a seed that failed counts as `start`."""
    scores = np.nan_to_num(scores, nan=start)
    means = scores.mean(axis=2)
    which, top = np.unravel_index(np.argmax(means), means.shape)
    good = means[which] >= means[which, top] - WITHIN * (means[which, top] - start)
    low = high = top
    while low > 0 and good[low - 1]:
        low -= 1
    while high + 1 < len(etas) and good[high + 1]:
        high += 1
    edge, width = top in (0, len(etas) - 1), float(np.log10(etas[high] / etas[low]))
    return Tuned(float(etas[top]), ratios[which], bool(edge), float(means[which, top]), width, scores[which])


def final(task: Task) -> Callable[[Curves], np.ndarray]:
    """What counts at the end of a run, (P, S): J where it can be computed exactly, the return elsewhere."""
    return lambda curves: (curves.returns if curves.grad_norm_sq is None else curves.objective)[..., -1]


def margin_row(ours: np.ndarray, theirs: np.ndarray, gain: float, **keys: object) -> Row:
    """The paired difference to the best rival, judged against the margin."""
    found = over_seeds(ours - theirs)
    return row("best objective", found, verdict=verdict.above(found, -MARGIN * gain), flags=("best rival",), **keys)


def compare(
    task: Task,
    etas: np.ndarray,
    *,
    tuning: int,
    seeds: int,
    roots: tuple[int, int],
    methods: tuple[Method, ...] = ENTRANTS,
    tell: Callable[[str], None] = lambda what: None,
) -> tuple[list[Row], list[Row]]:
    """The rows of one task, and the points of every method's score against eta on the tuning seeds.

    Args:
        task: what is learned.
        etas: the grid of every method.
        tuning, seeds: how many seeds choose settings, and how many are reported.
        roots: of the tuning seeds and of the reported ones.
        methods: PAvg and CALM among them.
        tell: called with what is being run.
    """
    rows, points, tuned, reported = [], [], {}, {}
    place, score, start = {"task": task.name, "K": task.local_steps, "N": task.agents, "round": task.rounds}, final(task), 0.0
    for method in methods:
        tell(f"{task.name}, {method.name}")
        found = measure(task, method, settings_of(method, etas, task.local_steps), seeds=tuning, root=roots[0], rounds=(0, task.rounds))
        if method is methods[0]:  # the same first policies for all
            start = float(np.nanmean((found.returns if found.grad_norm_sq is None else found.objective)[..., 0]))
        choices = ratios_of(method)
        best = tune(score(found).reshape(len(choices), len(etas), tuning), etas, choices, start)
        chosen = {"local_lr": [best.eta], "global_lr": [best.ratio * best.eta * task.local_steps]}
        values = score(measure(task, method, chosen, seeds=seeds, root=roots[1]))[0]
        tuned[method.name], reported[method.name] = best, np.nan_to_num(values, nan=start)
        keys = {"method": method.name, **place}
        flags = ("edge of the grid",) if best.at_edge else ()
        rows.append(row("best objective", over_seeds(reported[method.name]), eta=best.eta, ratio=best.ratio, flags=flags, **keys))
        rows.append(exactly("width", round(best.width, 3), tuning, **keys))
        points += line("objective", over_seeds(best.by_eta), "eta", etas, ratio=best.ratio, **keys)
    ours, against = reported[CALM.name], {"method": CALM.name, "comparison": "-", **place}
    gap = over_seeds(ours - reported[PAVG.name])
    rows.append(row("best objective", gap, against=PAVG.name, verdict=verdict.above(gap), **against))
    rival = max(tuned.keys() - {CALM.name}, key=lambda name: tuned[name].score)
    rows.append(margin_row(ours, reported[rival], tuned[rival].score - start, against=rival, **against))
    return rows, points


def in_percent(rows: list[Row], points: list[Row]) -> tuple[list[Row], list[Row]]:
    """CALM's differences to PAvg and to the best rival, and all points less PAvg's best one, in % of the best rival's gain."""
    (rival,) = [each for each in rows if "best rival" in each.flags]
    gain = -rival.verdict.bound / MARGIN
    best = max(each.mean for each in points if each.method == PAVG.name and each.mean is not None)
    gaps = [changed(each, 100.0 / gain) for each in rows if each.comparison == "-"]
    return gaps, [changed(each, 100.0 / gain, -100.0 * best / gain) for each in points]


def eta_plot(title: str, **where: object) -> Plot:
    """All methods against eta, less PAvg at its best; the dashed lines are PAvg's best and the margin below it."""
    return Plot(title=title, quantity="objective", x="eta", where=where, x_scale="log", y_scale="symlog 2", guides=(0.0, -100.0 * MARGIN),
                y_label="J - PAvg's best J, % of the gain")  # fmt: skip

"""The comparison of `drift` on families that others defined and on sizes at which CALM was never run before its rule was frozen.

CALM's rule, beta = 0.2 and rho = 0.4, the tasks, the grids and the margin were committed before the first run (8b7d5aa; see
`git log src/fedpg/paper/held_out.py`). Nothing was chosen on these tasks but the step-sizes of each method, on seeds that are not reported;
the grids were placed by looking at PAvg alone. This is the second run. In the first one every rival could choose lambda and CALM could not;
its verdicts are in docs/data/held_out_first.jsonl. Now CALM has the choice of its rivals, and all seeds are new.

Margin and width are those of `drift`. In the forest plot the dashed line on the left is the margin; figures against eta show means over the
tuning seeds.
"""

from typing import Any, NamedTuple

import msgspec
import numpy as np

from fedpg.errors import UserError
from fedpg.paper.compare import ENTRANTS, MARGIN, compare, eta_plot, in_percent
from fedpg.paper.method import CALM, METHODS, PAVG, Method
from fedpg.paper.results import Figure, Plot, Result, Row, Tell, select
from fedpg.paper.task import Task

TITLE = "CALM against the best of its rivals where nothing was tuned"
ROOTS = 535353, 828282
"""Of the tuning seeds and of the reported ones."""


class Entry(NamedTuple):
    """A task, and the grid of step-sizes."""

    task: Task
    etas: tuple[float, ...]


def steps(low: float) -> tuple[float, ...]:
    """Six step-sizes, half a decade apart."""
    return tuple(low * 10.0 ** (0.5 * np.arange(6)))


TORQUES = [[-2.0, 0.0, 2.0], [-2.5, 0.0, 2.5], [-3.0, 0.0, 3.0], [-4.0, 0.0, 4.0]]
LINKS = [0.6, 0.8, 1.0, 1.2]
ROBOT = {"local_steps": 4, "discount": 0.99, "batch": 2, "baseline": "linear", "eval_episodes": 8, "importance": "truncated"}
TABLES = (
    Entry(Task("conflict, N = 9, K = 48", agents=9, local_steps=48), steps(1e-3)),
    Entry(Task("RiverSwim", "riverswim", 6), steps(0.1)),
    Entry(Task("RiverSwim, mirrored", "riverswim", 6, options={"mirrored": True}), steps(0.1)),
    Entry(Task("FrozenLake", "frozen-lake", 6, 0.0, rounds=150, discount=0.95), steps(0.1)),
    Entry(
        Task("CliffWalking", "cliff-walking", 4, 0.0, {"is_slippery": [False, True, False, True]}, local_steps=16, discount=0.95),
        steps(3e-4),
    ),
    Entry(
        Task("Taxi", "taxi", 4, 0.0, {"is_rainy": True, "rainy_probability": [1.0, 0.8, 0.6, 0.4]}, local_steps=16,
             horizon=100, discount=0.95),
        steps(0.01),
    ),
)  # fmt: skip
CONTROL = (
    Entry(
        Task("Acrobot", "gym:Acrobot-v1", 4, 0.0, {"unwrapped.AVAIL_TORQUE": TORQUES, "unwrapped.LINK_LENGTH_1": LINKS}, rounds=12,
             horizon=150, **ROBOT),
        steps(3e-4),
    ),
    Entry(
        Task("LunarLander", "gym:LunarLander-v3", 4, 0.0, {"gravity": [-11.0, -10.0, -7.0, -4.0]}, rounds=16, horizon=200, **ROBOT),
        steps(1e-5),
    ),
    Entry(Task("Hopper, physics", "hopper", 4, 1.0, {"vary": "physics"}, rounds=24, horizon=200, **ROBOT), steps(3e-6)),
    Entry(Task("HalfCheetah, body", "halfcheetah", 4, 1.0, {"vary": "body"}, rounds=20, horizon=100, **ROBOT), steps(1e-6)),
)  # fmt: skip
SMOKE = {"roots": (20240721, 20240722), "tuning": 3, "seeds": 6, "methods": (PAVG, METHODS["SCAFFOLD"], CALM)}
SCALES: dict[str, dict[str, Any]] = {
    "smoke": SMOKE | {"entries": TABLES[1:2]},
    "full": {"roots": ROOTS, "tuning": 8, "seeds": 48, "entries": TABLES, "methods": ENTRANTS},
}
"""The roots of full scale are for full scale alone."""


def run(tell: Tell, roots: tuple[int, int], tuning: int, seeds: int, entries: tuple[Entry, ...], methods: tuple[Method, ...]) -> Result:
    """Runs the experiment. A task whose extra is not installed is left out, with a note."""
    rows, points, notes = [], [], []
    for number, (task, etas) in enumerate(entries):
        share = number / len(entries)
        try:
            found, drawn = compare(
                task, np.array(etas), tuning=tuning, seeds=seeds, roots=roots, methods=methods,
                tell=lambda what, share=share: tell(what, share),
            )  # fmt: skip
        except UserError as error:
            notes.append(f"{task.name} left out: {error}")
            continue
        rows, points = rows + found, points + drawn
    return Result(rows=rows, points=points, notes=notes + counted(rows))


def counted(rows: list[Row]) -> list[str]:
    """On how many tasks CALM is ahead of PAvg, and not inferior to the best rival."""
    compared, notes = select(rows, comparison="-"), []
    for what, rival in (("ahead of PAvg", False), ("not inferior to the best rival", True)):
        outcomes = [one.verdict.outcome for one in compared if ("best rival" in one.flags) == rival]
        held, unclear, failed = (outcomes.count(outcome) for outcome in ("holds", "unclear", "fails"))
        notes.append(f"CALM {what}: {held} of {len(outcomes)} tasks; unclear {unclear}; not so {failed}.")
    return notes


def figures(result: Result) -> list[Figure]:
    """A forest plot of CALM's differences with the margin, and every task's methods against eta."""
    gaps, points = [], []
    for task in dict.fromkeys(row.task for row in result.rows):
        own, drawn = in_percent(select(result.rows, quantity="best objective", task=task), select(result.points, task=task))
        (rival,) = [gap.against for gap in own if "best rival" in gap.flags]
        for gap in own:
            what = "CALM - best rival" if "best rival" in gap.flags else "CALM - PAvg"
            gaps.append(msgspec.structs.replace(gap, task=f"{task} (best rival: {rival})", quantity=what))
        # Tasks differ from seed to seed: intervals of J are no intervals of differences.
        points += [msgspec.structs.replace(point, low=point.mean, high=point.mean) for point in drawn]
    look = {"names": "task", "x_label": "difference in J, % of the best rival's gain", "guides": (0.0, -100.0 * MARGIN)}
    order = tuple(dict.fromkeys(gap.task for gap in gaps))
    forest = Plot(title="", quantity=("CALM - best rival", "CALM - PAvg"), order=order, **look)
    curves = [eta_plot(task, task=task) for task in dict.fromkeys(point.task for point in points)]
    return [Figure(plots=[forest], rows=gaps, columns=1, height=0.5 + 0.4 * len(order)), Figure(plots=curves, rows=points, suffix="eta")]

"""The comparison of `drift` where nothing was tuned: other numbers of agents and local steps, other families, other seeds.

Tasks, step-sizes, beta and rounds were written down before the first run. CALM was tuned on `conflict` with
heterogeneity 0.7, 1 and 1.3, 5 or 8 states, N = 3, 4, 5, 10 and 20, K = 1, 4, 8, 16, 32, 64 and 128, on random MDPs with own rewards,
and on CartPole with heterogeneity 2; on seeds of roots 3, 7 and 77003.
"""

from typing import Any

import numpy as np

from fedpg.paper import drift, verdict
from fedpg.paper.method import BETA, CALM, PAVG, Method
from fedpg.paper.results import Plot, Result, Row, Tell, over_seeds, row
from fedpg.paper.task import Task

TITLE = "CALM against PAvg where nothing was tuned"
SHARE = 0.05
"""PAvg's loss is looked at where it has lost this share of what it had learned."""
TASKS = (
    Task("conflict, new seeds only"),
    *(Task(f"conflict, N={agents}", agents=agents) for agents in (6, 12, 16)),
    *(Task(f"conflict, K={steps}", local_steps=steps) for steps in (6, 12, 24, 96)),
    *(Task(f"conflict, heterogeneity {h}", heterogeneity=h) for h in (0.85, 1.2)),
    Task("conflict, 12 states, 3 actions", options={"states": 12, "actions": 3}),
    Task("random-mdp, own rewards, N=8, K=16", "random-mdp", 8, local_steps=16, options={"reward_heterogeneity": 1.0}),
)
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {"root": 20240721, "seeds": 8, "etas": (0.001, 0.01, 0.0316, 0.1), "tasks": (TASKS[0], TASKS[-1]), "methods": (CALM,)},
    "full": {"root": 99017, "seeds": 64, "etas": tuple(np.logspace(-3, -1, 9)), "tasks": TASKS, "methods": (CALM,)},
}
"""The root of full scale is for full scale alone."""


def largest_reward(task: Task) -> float:
    """Gradients grow with it, so that steps of the same length need step-sizes that shrink with it."""
    return 10.0**task.heterogeneity if task.env == "conflict" else 1.0


def judge(etas: np.ndarray, ours: np.ndarray, theirs: np.ndarray, at: int | None, **keys: Any) -> tuple[list[Row], str]:
    """The rows of a method on one task and its verdict; J (E, S) each, `at` where PAvg has lost SHARE.

    Won: on average not worse than PAvg at any step-size, a higher best J, and less lost where PAvg has lost SHARE. Lost: clearly worse at
    some step-size. Otherwise not worse.
    """
    worst, gain = drift.at_worst(etas, ours, theirs, **keys), drift.at_best(etas, ours, theirs, **keys)
    rows, lasting = [worst, drift.own_best(etas, ours, **keys), gain], True
    if at is not None:
        paired = (theirs[drift.best(theirs)] - theirs[at]) - (ours[drift.best(ours)] - ours[at])
        ruling = verdict.Verdict(verdict.above(over_seeds(paired)).outcome, "below", float(drift.loss(theirs, at).mean))
        rows.append(row("loss", drift.loss(ours, at), eta=float(etas[at]), verdict=ruling, **keys))
        lasting = ruling.outcome == "holds"
    if worst.verdict.outcome == "fails":
        return rows, "lost"
    return rows, "won" if worst.verdict.outcome == gain.verdict.outcome == "holds" and lasting else "not worse"


def run(tell: Tell, root: int, seeds: int, etas: tuple[float, ...], tasks: tuple[Task, ...], methods: tuple[Method, ...]) -> Result:
    """Runs the experiment; `etas` are those where the largest reward is 10, and in inverse proportion to it elsewhere."""
    rows, points, plots, verdicts, finals = [], [], [], {}, {}
    for number, task in enumerate(tasks):
        tell(task.name, number / len(tasks))
        steps, found = np.array(etas) * largest_reward(TASKS[0]) / largest_reward(task), {}
        for method in (PAVG, *methods):
            found |= drift.objectives(task, method, steps, seeds, root, (0, task.rounds))
        start, theirs = found["PAvg", 1.0][0, 0], found["PAvg", 1.0][-1]
        at = drift.first_loss(theirs, SHARE * (drift.means(theirs).max() - float(over_seeds(start).mean)))
        keys = {"task": task.name, "round": task.rounds}
        rows.append(drift.own_best(steps, theirs, method="PAvg", beta=1.0, **keys))
        if at is not None:
            rows.append(row("loss", drift.loss(theirs, at), method="PAvg", beta=1.0, eta=float(steps[at]), **keys))
        for method in methods:
            own, said = judge(steps, found[method.name, BETA][-1], theirs, at, method=method.name, beta=BETA, **keys)
            rows, verdicts[method.name, task.name] = rows + own, said
        points += drift.drawn(steps, found, **keys)
        finals |= {f"{name}, {task.name}": values[-1] for (name, _), values in found.items()}
        said = " / ".join(dict.fromkeys(verdicts[method.name, task.name] for method in methods))
        plots.append(Plot(title=f"{task.name}: {said}", quantity="objective", x="eta", where={"task": task.name}, x_log=True))
    notes = []
    for method in methods:
        listed = {
            said: [task for (name, task), own in verdicts.items() if (name, own) == (method.name, said)]
            for said in ("won", "not worse", "lost")
        }
        notes.append(f"{method.name}: " + "; ".join(f"{said}: {', '.join(own) or 'none'}" for said, own in listed.items()) + ".")
    return Result(rows=rows, points=points, plots=plots, notes=notes + drift.failures(finals))

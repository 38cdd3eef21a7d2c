"""The comparison of `drift` where nothing was tuned: other numbers of agents and local steps, other families, other seeds."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from fedpg.paper import compare, verdict
from fedpg.paper.drift import TUNED_ON
from fedpg.paper.method import BETA, FEDHAPG_S, FEDSVRPG_S, Method
from fedpg.paper.results import Plot, Result, Row, Tell, line, over_seeds, row
from fedpg.paper.task import Task, measure
from fedpg.runs.sweep import grid

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


class Scale(NamedTuple):
    """Sizes of the experiment.

    Attributes:
        root: of seeds that were never used while tuning; that of full scale is for full scale alone.
        seeds: how many.
        etas: step-sizes where the largest reward is 10, as in `drift`; elsewhere in inverse proportion to it.
        tasks: what is run.
        methods: besides PAvg.
    """

    root: int
    seeds: int
    etas: tuple[float, ...]
    tasks: tuple[Task, ...]
    methods: tuple[Method, ...]


SCALES = {
    "smoke": Scale(20240721, 8, (0.001, 0.01, 0.0316, 0.1), (TASKS[0], TASKS[-1]), (FEDSVRPG_S,)),
    "full": Scale(99017, 64, tuple(np.logspace(-3, -1, 9)), TASKS, (FEDSVRPG_S, FEDHAPG_S)),
}
NOTES = [
    f"Tasks, step-sizes, beta and rounds were written down before the first of these runs. Tuned on: {TUNED_ON}.",
    "A method has won a task if it is on average not worse than PAvg at any step-size, has a higher best J, and has lost less where PAvg has "
    "lost 5 % of what it learned (its best J less that of the uniform policy). It has lost if it is clearly worse at some step-size.",
]


def largest_reward(task: Task) -> float:
    """Gradients grow with it, so that steps of the same length need step-sizes that shrink with it."""
    return 10.0**task.heterogeneity if task.env == "conflict" else 1.0


def judge(task: str, name: str, etas: np.ndarray, ours: np.ndarray, theirs: np.ndarray, at: int | None, rounds: int) -> tuple[list[Row], str]:
    """The rows of a method on one task and its verdict: won, not worse, or lost; J (E, S) each, `at` where PAvg has lost SHARE."""
    keys, top = {"task": task, "method": name, "beta": BETA, "round": rounds}, compare.best(ours)
    worst, gain = compare.at_worst(etas, ours, theirs, **keys), compare.at_best(etas, ours, theirs, **keys)
    rows, lasting = [worst, row("best objective", over_seeds(ours[top]), eta=float(etas[top]), **keys), gain], True
    if at is not None:
        own, paired = compare.loss(ours, at), compare.loss(theirs, at)
        less = verdict.above(over_seeds((theirs[compare.best(theirs)] - theirs[at]) - (ours[top] - ours[at]))).outcome
        lasting = less == "holds"
        rows.append(row("loss", own, eta=float(etas[at]), verdict=verdict.Verdict(less, "below", float(paired.mean)), **keys))
    if worst.verdict.outcome == "fails":
        return rows, "lost"
    won = worst.verdict.outcome == gain.verdict.outcome == "holds" and lasting
    return rows, "won" if won else "not worse"


def run(scale: str, tell: Tell) -> Result:
    """Runs the experiment."""
    size = SCALES[scale]
    rows, points, plots, verdicts, finals = [], [], [], {}, {}
    for number, task in enumerate(size.tasks):
        tell(task.name, number / len(size.tasks))
        etas, found = np.array(size.etas) * largest_reward(TASKS[0]) / largest_reward(task), {}
        for method in size.methods:
            betas = (BETA, 1.0) if method is FEDSVRPG_S else (BETA,)  # beta = 1 is PAvg
            sized = {"seeds": size.seeds, "root": size.root, "rounds": [0, task.rounds]}
            objective = measure(task, method, grid(beta=betas, local_lr=etas), **sized).objective
            objective = objective.reshape(len(betas), len(etas), size.seeds, 2)
            found |= {name: each for name, each in zip((method.name, "PAvg"), objective, strict=False)}
        start, final = found["PAvg"][0, :, 0], {name: values[..., 1] for name, values in found.items()}
        theirs, keys = final["PAvg"], {"task": task.name, "method": "PAvg", "beta": 1.0, "round": task.rounds}
        at = compare.first_loss(theirs, SHARE * (compare.means(theirs).max() - float(over_seeds(start).mean)))
        top = compare.best(theirs)
        rows.append(row("best objective", over_seeds(theirs[top]), eta=float(etas[top]), **keys))
        rows += [] if at is None else [row("loss", compare.loss(theirs, at), eta=float(etas[at]), **keys)]
        for method in size.methods:
            own, verdicts[method.name, task.name] = judge(task.name, method.name, etas, final[method.name], theirs, at, task.rounds)
            rows += own
        for name, values in final.items():
            keys |= {"method": name, "beta": 1.0 if name == "PAvg" else BETA}
            points += line("objective", over_seeds(values), "eta", etas, **keys)
            finals[f"{name}, {task.name}"] = values
        said = " / ".join(dict.fromkeys(verdicts[method.name, task.name] for method in size.methods))
        plots.append(Plot(title=f"{task.name}: {said}", quantity="objective", x="eta", where={"task": task.name}, x_log=True))
    summaries = [
        f"{method.name}: " + "; ".join(
            f"{said}: {', '.join(task for (name, task), own in verdicts.items() if (name, own) == (method.name, said)) or 'none'}"
            for said in ("won", "not worse", "lost")
        ) + "."
        for method in size.methods
    ]  # fmt: skip
    settings = {"beta": BETA, "root": size.root, "seeds": size.seeds, "etas": size.etas, "tasks": [dataclasses.asdict(task) for task in size.tasks]}
    return Result(name="held-out", title="The stabilised variants against PAvg where nothing was tuned", scale=scale, settings=settings,
                  rows=rows, points=points, plots=plots, notes=summaries + NOTES + compare.failures(finals))  # fmt: skip

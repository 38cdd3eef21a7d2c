"""HalfCheetah: the stabilised variants beside PAvg at equal numbers of trajectories, from PAvg's preset step-size to theirs.

PAvg is FedSVRPG-S with beta = 1, on the same seeds: as long as a variant takes PAvg's rounds their curves are the same.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from fedpg.paper import claims
from fedpg.paper.claims import difference, height, verdict
from fedpg.paper.outcome import Outcome, Row, Tell, row
from fedpg.paper.processes import side_by_side
from fedpg.paper.runs import FLOOR, Run, curves, missing, shown, task
from fedpg.report.figures import Panel
from fedpg.report.stats import estimate
from fedpg.runs.config import Config

FIRST, HESSIAN, THEIRS = "FedSVRPG-S", "FedHAPG-S", "PAvg"
METHODS = {FIRST: ("fedsvrpg-s", 0.2), HESSIAN: ("fedhapg-s", 0.2), THEIRS: ("fedsvrpg-s", 1.0)}
"""Algorithm and beta."""
ROBOT = {"rounds": 8, "eval_every": 1, "eval_episodes": 8}  # 200,000 environment steps a round
TINY = {"rounds": 6, "eval_every": 1, "batch": 2, "local_steps": 2, "horizon": 50, "eval_episodes": 2}
TINY |= {"normalise_observations": "off"}  # saves seconds of compilation
PHRASES = {"yes": "holds: ahead", "unclear": "holds within its interval", "no": "does not hold: behind"}


class Scale(NamedTuple):
    """Attributes:
    roots: of the seeds, by step-size: more where curves scatter more. None of them was used before full scale was run with it.
    seeds: of every root.
    given: what differs from the preset.
    processes: one curve of one root each; 1: all in one program, for which they must be one algorithm at several beta.
    names: of the `METHODS` that are run.
    """

    roots: dict[float, tuple[int, ...]]
    seeds: int
    given: dict[str, Any]
    processes: int
    names: tuple[str, ...]


SCALES = {
    "smoke": Scale({0.005: (20241,)}, 2, TINY, 1, (FIRST, THEIRS)),
    "full": Scale({0.001: (8101, 8102), 0.0025: (8101, 8102, 8103), 0.005: (8101, 8102, 8103)}, 4, ROBOT, 16, tuple(METHODS)),
}
NOTES = [
    "Step-sizes: 0.001 is PAvg's preset, 0.005 that of the variants. Return: undiscounted, mean over agents. Differences are paired over "
    "seeds; intervals are 95 % each, not corrected for how many there are.",
    "'Over the run' is the area under the curve divided by its rounds, 'at the end' the mean of the last three evaluations.",
    "The variants take PAvg's rounds for the first 128 local steps, here four rounds: what differs comes of the other four.",
    "Seeds are new: what is known of HalfCheetah from before (figure-1, and roots 7001 to 7008 while looking for a variant without lag; "
    "docs/reproduction.md) is not among them.",
]


class Job(NamedTuple):
    """Curves of one root at one step-size, in one program."""

    step: float
    names: tuple[str, ...]
    config: Config


def jobs(scale: Scale) -> list[Job]:
    """What is run."""
    listed = [scale.names] if scale.processes == 1 else [(name,) for name in scale.names]
    bases = {names: task("halfcheetah", METHODS[names[0]][0], seeds=scale.seeds, **scale.given) for names in listed}
    return [
        Job(step, names, dataclasses.replace(base, seed=root, local_lr=step))
        for step, roots in scale.roots.items()
        for root in roots
        for names, base in bases.items()
    ]


def do(job: Job) -> list[Run]:
    """The curves of a job."""
    return curves(job.config, {"beta": [METHODS[name][1] for name in job.names], "local_lr": [job.step] * len(job.names)})


def together(runs: list[Run]) -> Run:
    """Runs of several roots as one."""
    joined = {name: np.concatenate([getattr(run, name) for run in runs]) for name in Run._fields if name != "rounds"}
    return Run(runs[0].rounds, **joined)


def measure(scale: Scale, tell: Tell) -> dict[float, dict[str, Run]]:
    """The curves, by step-size and label."""
    todo = jobs(scale)
    done = side_by_side(do, [(job,) for job in todo], scale.processes, lambda share: tell("HalfCheetah", share))
    found: dict[float, dict[str, list[Run]]] = {step: {name: [] for name in scale.names} for step in scale.roots}
    for job, runs in zip(todo, done, strict=True):
        for name, one in zip(job.names, runs, strict=True):
            found[job.step][name].append(one)
    return {step: {name: together(runs) for name, runs in by_name.items()} for step, by_name in found.items()}


def judge(step: float, runs: dict[str, Run], judged: bool) -> list[Row]:
    """All at one step-size, and whether a variant is not worse than PAvg."""
    rows = []
    for what, of in (("over the run", height), ("at the end", claims.final)):
        values = {name: of(run) for name, run in runs.items()}
        rows += [row(f"local-lr {step:g}, {name}: return {what}", estimate(value)) for name, value in values.items()]
        rows += [
            difference(f"local-lr {step:g}, {what}: {name} - {THEIRS}", value, values[THEIRS], judged, **PHRASES)
            for name, value in values.items()
            if name != THEIRS
        ]
    return rows


def best(found: dict[float, dict[str, Run]], name: str, judged: bool) -> Row:
    """A variant and PAvg, each where its return at the end is highest. Seeds that only one of the two step-sizes has are left out."""
    ends = {one: {step: claims.final(runs[one]) for step, runs in found.items()} for one in (name, THEIRS)}
    top = {one: max(values, key=lambda step: values[step].mean()) for one, values in ends.items()}
    ours, theirs = (ends[one][top[one]] for one in (name, THEIRS))
    kept = min(len(ours), len(theirs))
    lead = estimate(ours[:kept] - theirs[:kept])
    label = f"best local-lr of each ({top[name]:g}, {top[THEIRS]:g}), at the end: {name} - {THEIRS}"
    return row(label, lead, verdict=verdict(lead.low, lead.high, judged, **PHRASES))


def panel(step: float, runs: dict[str, Run]) -> Panel:
    """The curves at one step-size."""
    lines = [claims.line(name, run, run.env_steps.mean(0) / 1e3) for name, run in runs.items()]
    return Panel(f"local-lr {step:g}", "environment steps, thousands", "return", lines)


def run(scale: str, tell: Tell) -> Outcome:
    """Runs the experiment."""
    asked, judged, title = SCALES[scale], scale == "full", "HalfCheetah: the stabilised variants beside PAvg"
    if lacking := missing("halfcheetah"):
        return Outcome("halfcheetah", title, scale, {}, [], [f"left out: {lacking}"], [])
    found = measure(asked, tell)
    rows = [line for step, runs in found.items() for line in judge(step, runs, judged)]
    rows += [best(found, name, judged) for name in asked.names if name != THEIRS]
    settings = {
        "methods": {name: METHODS[name] for name in asked.names},
        "roots": {f"{step:g}": roots for step, roots in asked.roots.items()},
        "counted at least": FLOOR["halfcheetah"],
    }
    settings |= shown(jobs(asked)[0].config)
    notes = NOTES + claims.failures({f"local-lr {step:g}, {name}": run for step, runs in found.items() for name, run in runs.items()})
    return Outcome("halfcheetah", title, scale, settings, rows, notes, [panel(step, runs) for step, runs in found.items()])

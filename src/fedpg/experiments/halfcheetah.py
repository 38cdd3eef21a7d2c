"""HalfCheetah: FedSVRPG-S beside PAvg at equal numbers of trajectories, from PAvg's preset step-size to its own.

PAvg is FedSVRPG-S with beta = 1, on the same seeds: as long as FedSVRPG-S takes PAvg's rounds their curves are the same.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from fedpg.experiments import claims
from fedpg.experiments.claims import difference, height, verdict
from fedpg.experiments.outcome import Outcome, Row, Tell, row
from fedpg.experiments.processes import side_by_side
from fedpg.experiments.runs import FLOOR, Run, curves, missing, shown, task
from fedpg.report.figures import Panel
from fedpg.report.stats import estimate
from fedpg.store.config import Config

OURS, THEIRS = "FedSVRPG-S", "PAvg"
BETAS = {OURS: 0.2, THEIRS: 1.0}
ROBOT = {"rounds": 8, "eval_every": 1, "eval_episodes": 8}  # 200,000 environment steps a round
TINY = {"rounds": 6, "eval_every": 1, "batch": 2, "local_steps": 2, "horizon": 50, "eval_episodes": 2}
TINY |= {"normalise_observations": "off"}  # saves seconds of compilation
PHRASES = {"yes": "holds: ahead", "unclear": "holds within its interval", "no": "does not hold: behind"}


class Scale(NamedTuple):
    """Attributes:
    roots: of the seeds, by step-size: more where curves scatter more. None of them was used before full scale was run with it.
    seeds: of every root.
    given: what differs from the preset.
    processes: one curve of one root each; 1: both in one program.
    """

    roots: dict[float, tuple[int, ...]]
    seeds: int
    given: dict[str, Any]
    processes: int


SCALES = {
    "smoke": Scale({0.005: (20241,)}, 2, TINY, 1),
    "full": Scale({0.001: (8101, 8102), 0.0025: (8101, 8102, 8103), 0.005: (8101, 8102, 8103)}, 4, ROBOT, 16),
}
NOTES = [
    "Step-sizes: 0.001 is PAvg's preset, 0.005 that of FedSVRPG-S. Return: undiscounted, mean over agents. Differences are paired over "
    "seeds; intervals are 95 % each, not corrected for how many there are.",
    "'Over the run' is the area under the curve divided by its rounds, 'at the end' the mean of the last three evaluations.",
    "FedSVRPG-S takes PAvg's rounds for the first 128 local steps, here four rounds: what differs comes of the other four.",
    "Seeds are new: what is known of HalfCheetah from before (figure-1, and roots 7001 to 7005 while looking for a variant without lag; "
    "docs/reproduction.md) is not among them.",
]


class Job(NamedTuple):
    """Curves of one root at one step-size, in one program."""

    step: float
    names: tuple[str, ...]
    config: Config


def jobs(scale: Scale) -> list[Job]:
    """What is run."""
    base = task("halfcheetah", "fedsvrpg-s", seeds=scale.seeds, **scale.given)
    listed = [tuple(BETAS)] if scale.processes == 1 else [(name,) for name in BETAS]
    return [
        Job(step, names, dataclasses.replace(base, seed=root, local_lr=step))
        for step, roots in scale.roots.items()
        for root in roots
        for names in listed
    ]


def do(job: Job) -> list[Run]:
    """The curves of a job."""
    return curves(job.config, {"beta": [BETAS[name] for name in job.names], "local_lr": [job.step] * len(job.names)})


def together(runs: list[Run]) -> Run:
    """Runs of several roots as one."""
    joined = {name: np.concatenate([getattr(run, name) for run in runs]) for name in Run._fields if name != "rounds"}
    return Run(runs[0].rounds, **joined)


def measure(scale: Scale, tell: Tell) -> dict[float, dict[str, Run]]:
    """The curves, by step-size and label."""
    todo = jobs(scale)
    done = side_by_side(do, [(job,) for job in todo], scale.processes, lambda share: tell("HalfCheetah", share))
    found: dict[float, dict[str, list[Run]]] = {step: {name: [] for name in BETAS} for step in scale.roots}
    for job, runs in zip(todo, done, strict=True):
        for name, one in zip(job.names, runs, strict=True):
            found[job.step][name].append(one)
    return {step: {name: together(runs) for name, runs in by_name.items()} for step, by_name in found.items()}


def judge(step: float, runs: dict[str, Run], judged: bool) -> list[Row]:
    """Both at one step-size, and whether ours is not worse."""
    rows = []
    for what, of in (("over the run", height), ("at the end", claims.final)):
        values = {name: of(run) for name, run in runs.items()}
        rows += [row(f"local-lr {step:g}, {name}: return {what}", estimate(value)) for name, value in values.items()]
        rows.append(difference(f"local-lr {step:g}, {what}: {OURS} - {THEIRS}", values[OURS], values[THEIRS], judged, **PHRASES))
    return rows


def best(found: dict[float, dict[str, Run]], judged: bool) -> Row:
    """Each at the step-size where its return at the end is highest. Seeds that only one of the two step-sizes has are left out."""
    ends = {name: {step: claims.final(runs[name]) for step, runs in found.items()} for name in BETAS}
    top = {name: max(values, key=lambda step: values[step].mean()) for name, values in ends.items()}
    ours, theirs = (ends[name][top[name]] for name in (OURS, THEIRS))
    kept = min(len(ours), len(theirs))
    lead = estimate(ours[:kept] - theirs[:kept])
    label = f"best local-lr of each ({top[OURS]:g}, {top[THEIRS]:g}), at the end: {OURS} - {THEIRS}"
    return row(label, lead, verdict=verdict(lead.low, lead.high, judged, **PHRASES))


def panel(step: float, runs: dict[str, Run]) -> Panel:
    """The curves at one step-size."""
    lines = [claims.line(name, run, run.env_steps.mean(0) / 1e3) for name, run in runs.items()]
    return Panel(f"local-lr {step:g}", "environment steps, thousands", "return", lines)


def run(scale: str, tell: Tell) -> Outcome:
    """Runs the experiment."""
    asked, judged, title = SCALES[scale], scale == "full", "HalfCheetah: FedSVRPG-S beside PAvg"
    if lacking := missing("halfcheetah"):
        return Outcome("halfcheetah", title, scale, {}, [], [f"left out: {lacking}"], [])
    found = measure(asked, tell)
    rows = [line for step, runs in found.items() for line in judge(step, runs, judged)] + [best(found, judged)]
    settings = {
        "beta": BETAS,
        "roots": {f"{step:g}": roots for step, roots in asked.roots.items()},
        "counted at least": FLOOR["halfcheetah"],
    }
    settings |= shown(jobs(asked)[0].config)
    notes = NOTES + claims.failures({f"local-lr {step:g}, {name}": run for step, runs in found.items() for name, run in runs.items()})
    return Outcome("halfcheetah", title, scale, settings, rows, notes, [panel(step, runs) for step, runs in found.items()])

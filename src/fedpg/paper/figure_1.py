"""Figure 1 of the paper: learning curves of both algorithms on CartPole and HalfCheetah for four beta.

The figure has no numbers. What the text reads off it is checked instead, on curves of our own at our own step-sizes.
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

ALGORITHMS = {"fedsvrpg-m": "FedSVRPG-M", "fedhapg-m": "FedHAPG-M"}
STABILISED = {"fedsvrpg-m": "fedsvrpg-s", "fedhapg-m": "fedhapg-s"}
TASKS = {"cartpole": "CartPole", "halfcheetah": "HalfCheetah"}
# the best beta; section Experiments, "Deep RL Case"
CLAIMED = {"cartpole": {"fedsvrpg-m": 0.2, "fedhapg-m": 0.8}, "halfcheetah": {"fedsvrpg-m": 0.5, "fedhapg-m": 0.5}}
OURS, OURS_BETA = "ours (stabilised), beta 0.2", 0.2
CONTROL, STRETCH = "beta 1, five times the step", 5.0  # what beta 0.2 is without its correction
OURS_FAR = f"{OURS}, five times the step"
PLAIN, PLAIN_FAR = "PAvg", "PAvg, five times the step"  # ours with beta 1: beside it, from the same samples

Job = tuple[Config, dict[str, list[float]]]
"""What `curves` takes."""


class Scale(NamedTuple):
    """Attributes:
    betas: of the paper's algorithms.
    beside: run the stabilised variants and the control too.
    given: what differs from the presets, by task and algorithm; those named are run.
    processes: for HalfCheetah, one setting each; 1: every setting in one program.
    """

    betas: tuple[float, ...]
    beside: bool
    given: dict[str, dict[str, dict[str, Any]]]
    processes: int


SMALL = {"rounds": 8, "eval_every": 2, "seeds": 3, "batch": 4, "u0": "1", "eval_episodes": 8}
TINY = {"rounds": 2, "eval_every": 1, "seeds": 1, "batch": 2, "local_steps": 2, "horizon": 50, "u0": "0", "eval_episodes": 2}
TINY |= {"normalise_observations": "off"}  # saves seconds of compilation
LARGE = {"rounds": 40, "eval_every": 2, "seeds": 32, "u0": "1"}
ROBOTS = {  # 200,000 and 20,000 environment steps a round; twice FedHAPG-M's preset step, for a 33rd of its preset's rounds
    "fedsvrpg-m": {"rounds": 8, "eval_every": 1, "seeds": 3, "u0": "1", "eval_episodes": 8},
    "fedhapg-m": {"rounds": 30, "eval_every": 5, "seeds": 3, "u0": "1", "eval_episodes": 8, "local_lr": 0.0012},
}
SCALES = {
    "smoke": Scale((0.2, 1.0), False, {"cartpole": dict.fromkeys(ALGORITHMS, SMALL), "halfcheetah": {"fedsvrpg-m": TINY}}, 1),
    "full": Scale((0.2, 0.5, 0.8, 1.0), True, {"cartpole": dict.fromkeys(ALGORITHMS, LARGE), "halfcheetah": ROBOTS}, 4),
}
NOTES = [
    "The figure has no numbers: 'mean return over the run' is the area under our curve divided by its rounds, and differences are paired "
    "over seeds. Intervals are 95 % each, not corrected for how many there are.",
    *claims.PAPER_AND_OURS,
    "FedHAPG-M on HalfCheetah has twice its preset's local-lr, for a 13th of its rounds. Ours runs at its panel's, not at its own.",
    claims.BASELINE,
    f"{claims.LONGER_STEP} '{CONTROL}' is the control for that.",
    "Ours is compared with PAvg from the same start. beta 1 of FedSVRPG-M is PAvg too, but after u_0: its baseline and its scale of "
    "observations have then seen trajectories that ours has not.",
]


def label(beta: float) -> str:
    """What a curve is called."""
    return f"beta {beta:g}"


def jobs(config: Config, scale: Scale, together: bool) -> dict[tuple[str, ...], Job]:
    """What `curves` has to do for one panel, by the labels of the curves it will return."""
    settings = {label(beta): (beta, config.local_lr) for beta in scale.betas}
    settings |= {CONTROL: (1.0, STRETCH * config.local_lr)} if scale.beside else {}
    made = split(config, settings, together)
    if scale.beside:
        ours = dataclasses.replace(config, algorithm=STABILISED[config.algorithm])
        near, far = config.local_lr, STRETCH * config.local_lr
        beside = {OURS: (OURS_BETA, near), OURS_FAR: (OURS_BETA, far), PLAIN: (1.0, near), PLAIN_FAR: (1.0, far)}
        made |= split(ours, beside, together)
    return made


def split(config: Config, settings: dict[str, tuple[float, float]], together: bool) -> dict[tuple[str, ...], Job]:
    """(beta, local-lr) by label, as one job for all curves or as one for each."""
    listed = [tuple(settings)] if together else [(name,) for name in settings]
    return {
        names: (config, {"beta": [settings[name][0] for name in names], "local_lr": [settings[name][1] for name in names]})
        for names in listed
    }


def measure(env: str, configs: dict[str, Config], scale: Scale, tell: Tell) -> dict[str, dict[str, Run]]:
    """The curves of one task, by algorithm and label."""
    processes, share = (scale.processes, 0.5) if env == "halfcheetah" else (1, 0.0)
    todo = {(algorithm, names): job for algorithm, config in configs.items() for names, job in jobs(config, scale, processes == 1).items()}
    tell(TASKS[env], share)
    done = side_by_side(curves, list(todo.values()), processes, lambda part: tell(TASKS[env], share + part / 2))
    found: dict[str, dict[str, Run]] = {algorithm: {} for algorithm in configs}
    for (algorithm, names), runs in zip(todo, done, strict=True):
        found[algorithm] |= dict(zip(names, runs, strict=True))
    return found


def judge(where: str, claimed: float, runs: dict[str, Run], betas: tuple[float, ...], judged: bool) -> list[Row]:
    """What the text says of one panel, and what we add."""
    heights = {name: height(run) for name, run in runs.items()}
    rows = [row(f"{where}, {name}: mean return over the run", estimate(value)) for name, value in heights.items()]
    gains = {beta: estimate(runs[label(beta)].total_return[:, -1] - runs[label(beta)].total_return[:, 0]) for beta in betas}
    least = min(gains, key=lambda beta: gains[beta].mean)
    rises = verdict(gains[least].low, gains[least].high, judged, no="does not hold")
    rows.append(row(f"{where}: every beta rises; least gain (beta {least:g})", gains[least], verdict=rises))
    if claimed in betas:
        rows.append(difference(f"{where}: beta {claimed:g} above beta 1", heights[label(claimed)], heights[label(1.0)], judged))
        rows.append(claims.best(where, claimed, {beta: heights[label(beta)] for beta in betas}, judged))
        if CONTROL in runs:
            rows.append(difference(f"{where}: beta {claimed:g} above {CONTROL}", heights[label(claimed)], heights[CONTROL], judged))
    if OURS in runs:
        rows.append(difference(f"{where}: {OURS}, above {PLAIN}", heights[OURS], heights[PLAIN], judged))
        rows.append(difference(f"{where}: {OURS_FAR}, above {PLAIN_FAR}", heights[OURS_FAR], heights[PLAIN_FAR], judged))
    return rows


def spread_row(env: str, runs: dict[str, dict[str, Run]], betas: tuple[float, ...], judged: bool) -> Row:
    """The claim that FedHAPG-M varies less."""
    ratio = claims.spread_ratio(*([runs[algorithm][label(beta)] for beta in betas] for algorithm in ALGORITHMS))
    says = verdict(np.log(ratio.low), np.log(ratio.high), judged)
    return row(f"{TASKS[env]}: spread over seeds, FedSVRPG-M / FedHAPG-M (claimed above 1)", ratio, verdict=says)


def panel(title: str, runs: dict[str, Run], robot: bool) -> Panel:
    """The curves of one task and algorithm; on CartPole over rounds, where episodes grow longer as they get better."""
    lines = []
    for name, one in runs.items():
        if name in (PLAIN, PLAIN_FAR):  # beta 1 is drawn, and the same but for where it begins
            continue
        x = one.env_steps.mean(0) / 1e3 if robot else one.rounds
        lines.append(claims.line(name, one, x, "--" if name in (OURS, CONTROL) else "-"))
    return Panel(title, "environment steps, thousands" if robot else "rounds", "return", lines)


def run(scale: str, tell: Tell) -> Outcome:
    """Runs the experiment."""
    asked, judged = SCALES[scale], scale == "full"
    rows, panels, notes, settings = [], [], list(NOTES), {"betas": asked.betas, "counted at least": FLOOR}
    for env, given in asked.given.items():
        if lacking := missing(env):
            notes.append(f"left out: {lacking}")
            continue
        configs = {algorithm: task(env, algorithm, **own) for algorithm, own in given.items()}
        found = measure(env, configs, asked, tell)
        for algorithm, runs in found.items():
            where = f"{TASKS[env]}, {ALGORITHMS[algorithm]}"
            settings[where] = shown(configs[algorithm])
            rows += judge(where, CLAIMED[env][algorithm], runs, asked.betas, judged)
            notes += claims.failures({f"{where}, {name}": one for name, one in runs.items()})
            notes.append(claims.weight_note(f"{where}, {label(asked.betas[0])}", runs[label(asked.betas[0])]))
            panels.append(panel(where, runs, env == "halfcheetah"))
        if len(found) == 2 and configs["fedhapg-m"].seeds > 2:
            rows.append(spread_row(env, found, asked.betas, judged))
    return Outcome("figure-1", "Figure 1: return of both algorithms for several beta", scale, settings, rows, notes, panels)

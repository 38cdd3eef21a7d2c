"""Figure 1 of the paper: learning curves of both algorithms on CartPole and HalfCheetah for four beta.

The figure has no numbers. What the text reads off it is checked instead, on curves at our own step-sizes. A smaller beta can be a larger
step: where the importance weights have degenerated, FedSVRPG-M is heavy ball with up to 1/beta of the step. beta = 1 with five times the
step is the control for that. Step-sizes are our presets: the paper's eta belongs to its code's clamped, adaptive steps. As in the paper,
agents differ only in where they start; unlike in the paper, there is a baseline and a batch.
"""

import dataclasses
from typing import Any

import msgspec
import numpy as np

from fedpg.paper import presets, verdict
from fedpg.paper.presets import SMALL, TASKS, TINY, Key, difference, over_run, preset
from fedpg.paper.results import Figure, Result, Row, Tell, minus, row, select
from fedpg.report.statistics import estimate
from fedpg.runs.config import Config
from fedpg.runs.sweep import Curves

TITLE = "Figure 1: return of both algorithms for several beta"
NAMES = {"fedsvrpg-m": "FedSVRPG-M", "fedhapg-m": "FedHAPG-M"}
CLAIMED = {"cartpole": {"fedsvrpg-m": 0.2, "fedhapg-m": 0.8}, "halfcheetah": {"fedsvrpg-m": 0.5, "fedhapg-m": 0.5}}
"""The best beta according to the paper's section "Deep RL Case"."""
LONGER = 5.0
"""How much longer the control's step is."""
LARGE, ROBOT = {"rounds": 40, "eval_every": 2, "seeds": 32, "u0": 1}, {"seeds": 3, "u0": 1, "eval_episodes": 8}
ROBOTS = {  # 200,000 and 20,000 environment steps a round; FedHAPG-M has twice its preset's step, for a 13th of its rounds
    "fedsvrpg-m": ROBOT | {"rounds": 8, "eval_every": 1},
    "fedhapg-m": ROBOT | {"rounds": 30, "eval_every": 5, "local_lr": 0.0012},
}
TINIEST = {"fedsvrpg-m": TINY | {"rounds": 2, "seeds": 1, "u0": 0}}
SMOKE, FULL = ({"cartpole": dict.fromkeys(NAMES, poles), "halfcheetah": own} for poles, own in ((SMALL, TINIEST), (LARGE, ROBOTS)))
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {"betas": (0.2, 1.0), "full": False, "given": SMOKE, "processes": 1},
    "full": {"betas": (0.2, 0.5, 0.8, 1.0), "full": True, "given": FULL, "processes": 4},
}


def configurations(config: Config, betas: tuple[float, ...], full: bool) -> dict[Key, Config]:
    """What is run for one panel: the paper's algorithm and, at full scale, the control."""
    first = Key(TASKS[config.env], NAMES[config.algorithm], betas[0], config.local_lr)
    keys = [first._replace(beta=beta) for beta in betas] + [first._replace(beta=1.0, eta=LONGER * config.local_lr)] * full
    return {key: dataclasses.replace(config, beta=key.beta, local_lr=key.eta) for key in keys}


def judge(claimed: float, found: dict[Key, Curves], full: bool) -> list[Row]:
    """What the text says of one panel, and the comparisons we add."""
    heights, first = {key: over_run(curves) for key, curves in found.items()}, next(iter(found))
    printed = {key: heights[key] for key in found if key.method == first.method and key.eta == first.eta}
    rows = [row("return over the run", estimate(value), **key._asdict()) for key, value in heights.items()]
    gains = {key: estimate(found[key].returns[:, -1] - found[key].returns[:, 0]) for key in printed}
    least = min(gains, key=lambda key: gains[key].mean)
    rows.append(row("least gain", gains[least], verdict=verdict.above(gains[least]) if full else None, **least._asdict()))
    best, plain = first._replace(beta=claimed), first._replace(beta=1.0)
    pairs = [(best, plain), (best, plain._replace(eta=LONGER * first.eta))]
    rows += [difference("return over the run", heights, one, other, full) for one, other in pairs if one in found and other in found]
    return rows + ([presets.lead("lead", printed, best, full)] if best in printed else [])


def run(tell: Tell, betas: tuple[float, ...], full: bool, given: dict[str, dict[str, dict[str, Any]]], processes: int) -> Result:
    """Runs the experiment.

    Args:
        full: also run the control, and judge the claims.
        given: what differs from the presets, by task and algorithm.
        processes: for HalfCheetah, one setting each; 1: every setting in one program.
    """
    rows, points, notes = [], [], []
    for env, own in given.items():
        if lacking := presets.missing(env):
            notes.append(f"left out: {lacking}")
            continue
        robot, done = env == "halfcheetah", 0.5 * (env == "halfcheetah")
        tell(TASKS[env], done)
        panels = {name: configurations(preset(env, name, **changes), betas, full) for name, changes in own.items()}
        learned = presets.learn({key: config for panel in panels.values() for key, config in panel.items()},
                                processes=processes if robot else 1, tell=lambda share: tell(TASKS[env], done + share / 2))  # noqa: B023  # fmt: skip
        printed = []
        for algorithm, panel in panels.items():
            found = {key: learned[key] for key in panel}
            first, name = next(iter(found)), NAMES[algorithm]
            rows += judge(CLAIMED[env][algorithm], found, full)
            points, notes = points + presets.points(found, robot), notes + presets.failures(found)
            ess = np.nanmedian(found[first].ess[:, 1:])
            notes.append(
                f"{TASKS[env]}, {name}, beta {betas[0]:g}: effective sample size of the importance weights {ess:.2g} of 1 (median)"
            )
            printed.append([curves for key, curves in found.items() if key.method == name and key.eta == first.eta])
        if len(printed) == 2 and len(printed[0][0].returns) > 2:
            ratio = presets.spread_ratio(*printed)
            compared = {"task": TASKS[env], "method": "FedSVRPG-M", "against": "FedHAPG-M", "comparison": "/"}
            rows.append(row("spread", ratio, verdict=verdict.above(ratio, 1.0) if full else None, **compared))
    return Result(rows=rows, points=points, notes=notes, settings={"a return counts at least": presets.FLOOR})


def figures(result: Result) -> list[Figure]:
    """Learning curves, and the same less that of beta = 1 at the same step; the control is named by its step."""
    levels, gaps, plots, gap_plots = [], [], [], []
    for task, method in dict.fromkeys((point.task, point.method) for point in result.points):
        own = select(result.points, task=task, method=method)
        eta, robot = min(point.eta for point in own), task != TASKS["cartpole"]
        title = f"{task}, {method}"
        named = [msgspec.structs.replace(p, method=f"beta {p.beta:g}" + ", 5 times the step" * (p.eta > 2 * eta), task=title) for p in own]
        levels += named
        gaps += minus(named, select(named, method="beta 1"), "x" if robot else "round")
        plots.append(presets.plot(title, robot, where={"task": title}))
        gap_plots.append(presets.plot(title, robot, where={"task": title}, y_label="return, difference from beta 1"))
    return [Figure(plots=plots, rows=levels), Figure(plots=gap_plots, rows=gaps, suffix="differences")]

"""Figure 1 of the paper: learning curves of both algorithms on CartPole and HalfCheetah for four beta.

The figure has no numbers. What the text reads off it is checked instead, on curves at our own step-sizes.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from fedpg.paper import presets, verdict
from fedpg.paper.presets import SMALL, TASKS, TINY, learn_all, over_run, preset
from fedpg.paper.results import Plot, Result, Row, Tell, row
from fedpg.report.statistics import Estimate, estimate
from fedpg.runs.config import Config
from fedpg.runs.sweep import Curves

NAMES = {"fedsvrpg-m": "FedSVRPG-M", "fedhapg-m": "FedHAPG-M"}
STABILISED = {"fedsvrpg-m": ("fedsvrpg-s", "FedSVRPG-S", "PAvg"), "fedhapg-m": ("fedhapg-s", "FedHAPG-S", "PAvg, beside FedHAPG-S")}
"""The variant, its name, and the name of PAvg: the variant with beta 1, which has the same samples."""
CLAIMED = {"cartpole": {"fedsvrpg-m": 0.2, "fedhapg-m": 0.8}, "halfcheetah": {"fedsvrpg-m": 0.5, "fedhapg-m": 0.5}}
"""The best beta according to the paper's section "Deep RL Case"."""
BETA, LONGER = 0.2, 5.0
"""beta of the variants; beta 0.2 without its correction is a step five times as long, which the control takes."""


class Key(NamedTuple):
    """One curve of a panel."""

    method: str
    beta: float
    eta: float


class Scale(NamedTuple):
    """Sizes of the experiment.

    Attributes:
        betas: of the paper's algorithms.
        beside: run the stabilised variants and the control too.
        given: what differs from the presets, by task and algorithm.
        processes: for HalfCheetah, one setting each; 1: every setting in one program.
    """

    betas: tuple[float, ...]
    beside: bool
    given: dict[str, dict[str, dict[str, Any]]]
    processes: int


LARGE, ROBOT = {"rounds": 40, "eval_every": 2, "seeds": 32, "u0": "1"}, {"seeds": 3, "u0": "1", "eval_episodes": 8}
ROBOTS = {  # 200,000 and 20,000 environment steps a round; FedHAPG-M has twice its preset's step, for a 13th of its rounds
    "fedsvrpg-m": ROBOT | {"rounds": 8, "eval_every": 1},
    "fedhapg-m": ROBOT | {"rounds": 30, "eval_every": 5, "local_lr": 0.0012},
}
TINIEST = {"fedsvrpg-m": TINY | {"rounds": 2, "seeds": 1, "u0": "0"}}
SCALES = {
    "smoke": Scale((0.2, 1.0), False, {"cartpole": dict.fromkeys(NAMES, SMALL), "halfcheetah": TINIEST}, 1),
    "full": Scale((0.2, 0.5, 0.8, 1.0), True, {"cartpole": dict.fromkeys(NAMES, LARGE), "halfcheetah": ROBOTS}, 4),
}
NOTES = [
    "'Mean return over the run' is the area under our curve divided by its rounds; differences are paired over seeds. Intervals are 95 % "
    "each, not corrected for how many there are.",
    "The variants are compared with PAvg from the same start. beta 1 of FedSVRPG-M is PAvg too, but after the trajectories of u_0.",
    *presets.NOTES,
]


def plans(config: Config, scale: Scale) -> dict[tuple[Key, ...], tuple[Config, presets.Settings]]:
    """What is run for one panel, by the keys of the curves."""
    near, far = config.local_lr, LONGER * config.local_lr
    keys = {config.algorithm: [Key(NAMES[config.algorithm], beta, near) for beta in scale.betas]}
    if scale.beside:
        algorithm, name, plain = STABILISED[config.algorithm]
        keys[config.algorithm].append(Key(NAMES[config.algorithm], 1.0, far))
        keys[algorithm] = [Key(method, beta, eta) for method, beta in ((name, BETA), (plain, 1.0)) for eta in (near, far)]
    return {
        tuple(own): (dataclasses.replace(config, algorithm=name), {"beta": [k.beta for k in own], "local_lr": [k.eta for k in own]})
        for name, own in keys.items()
    }


def best_beta(values: dict[float, np.ndarray], claimed: float, quantity: str, judged: bool, **keys: Any) -> Row:
    """The lead of the beta that is claimed to be best on the best of the others, (S,) each."""
    rival = max((beta for beta in values if beta != claimed), key=lambda beta: values[beta].mean())
    found = estimate(values[claimed] - values[rival])
    ruling = verdict.above(found) if judged else None
    return row(quantity, found, beta=claimed, against=f"beta {rival:g}", comparison="-", verdict=ruling, **keys)


def judge(task: str, algorithm: str, claimed: float, eta: float, runs: dict[Key, Curves], betas: tuple[float, ...], judged: bool) -> list[Row]:
    """What the text says of one panel, and the comparisons we add."""
    heights, name = {key: over_run(curves) for key, curves in runs.items()}, NAMES[algorithm]
    rows = [row("return over the run", estimate(value), task=task, **key._asdict()) for key, value in heights.items()]

    def difference(one: Key, other: Key, against: str) -> None:
        if one in runs and other in runs:
            found, far = estimate(heights[one] - heights[other]), {} if one.eta == other.eta else {"against_eta": other.eta}
            keys = {"task": task, "against": against, "comparison": "-"} | one._asdict() | far
            rows.append(row("return over the run", found, verdict=verdict.above(found) if judged else None, **keys))

    gains = {beta: estimate(np.diff(runs[Key(name, beta, eta)].returns[:, [0, -1]])[:, 0]) for beta in betas}
    least = min(gains, key=lambda beta: gains[beta].mean)
    keys = {"task": task, "method": name, "eta": eta}
    rows.append(row("least gain", gains[least], beta=least, verdict=verdict.above(gains[least]) if judged else None, **keys))
    difference(Key(name, claimed, eta), Key(name, 1.0, eta), "beta 1")
    if claimed in betas:
        rows.append(best_beta({beta: heights[Key(name, beta, eta)] for beta in betas}, claimed, "lead", judged, **keys))
    difference(Key(name, claimed, eta), Key(name, 1.0, LONGER * eta), "beta 1")
    _, ours, plain = STABILISED[algorithm]
    for step in (eta, LONGER * eta):
        difference(Key(ours, BETA, step), Key(plain, 1.0, step), plain)
    return rows


def run(scale: str, tell: Tell) -> Result:
    """Runs the experiment."""
    size, judged = SCALES[scale], scale == "full"
    rows, points, plots, notes, settings = [], [], [], list(NOTES), {"counted at least": presets.FLOOR}
    for env, given in size.given.items():
        if lacking := presets.missing(env):
            notes.append(f"left out: {lacking}")
            continue
        configs = {algorithm: preset(env, algorithm, **own) for algorithm, own in given.items()}
        listed = {algorithm: plans(config, size) for algorithm, config in configs.items()}
        robot, done, task = env == "halfcheetah", 0.5 * (env == "halfcheetah"), TASKS[env]
        tell(task, done)
        found = iter(learn_all([plan for own in listed.values() for plan in own.values()], processes=size.processes if robot else 1,
                               tell=lambda share: tell(task, done + share / 2)))  # noqa: B023  # fmt: skip
        runs = {algorithm: {key: one for keys in own for key, one in zip(keys, next(found), strict=True)} for algorithm, own in listed.items()}
        for algorithm, own in runs.items():
            name, eta, where = NAMES[algorithm], configs[algorithm].local_lr, f"{task}, {NAMES[algorithm]}"
            settings[where] = presets.reported(configs[algorithm])
            rows += judge(task, algorithm, CLAIMED[env][algorithm], eta, own, size.betas, judged)
            points += [point for key, curves in own.items() for point in presets.points(curves, robot, task=task, **key._asdict())]
            notes += presets.failures({f"{task}, {key}": curves for key, curves in own.items()})
            ess = np.nanmedian(own[Key(name, size.betas[0], eta)].ess[:, 1:])
            notes.append(f"{where}, beta {size.betas[0]:g}: effective sample size of the importance weights {ess:.2g} of 1 (median)")
            where_drawn = {"task": task, "method": [name, STABILISED[algorithm][1]]}
            plots.append(Plot(title=where, quantity="return", x="x" if robot else "round", where=where_drawn, series=("method", "beta", "eta"),
                              x_label="environment steps, thousands" if robot else ""))  # fmt: skip
        if len(runs) == 2 and configs["fedhapg-m"].seeds > 2:
            printed = [[own[Key(NAMES[a], beta, configs[a].local_lr)] for beta in size.betas] for a, own in runs.items()]
            ratio: Estimate = presets.spread_ratio(*printed)
            rows.append(row("spread", ratio, task=task, method="FedSVRPG-M", against="FedHAPG-M", comparison="/",
                            verdict=verdict.above(ratio, 1.0) if judged else None))  # fmt: skip
    return Result(name="figure-1", title="Figure 1: return of both algorithms for several beta", scale=scale, settings=settings,
                  rows=rows, points=points, plots=plots, notes=notes)  # fmt: skip

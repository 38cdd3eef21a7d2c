"""HalfCheetah: the stabilised variants beside PAvg at equal numbers of trajectories, from PAvg's preset step-size to theirs.

PAvg is FedSVRPG-S with beta = 1 on the same seeds: as long as a variant takes PAvg's rounds their curves are the same.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from fedpg.paper import presets, verdict
from fedpg.paper.presets import TINY, final, learn_all, over_run, preset
from fedpg.paper.results import Plot, Result, Row, Tell, row
from fedpg.report.statistics import estimate
from fedpg.runs.sweep import Curves

METHODS = {"FedSVRPG-S": ("fedsvrpg-s", 0.2), "FedHAPG-S": ("fedhapg-s", 0.2), "PAvg": ("fedsvrpg-s", 1.0)}
"""Algorithm and beta."""


class Scale(NamedTuple):
    """Sizes of the experiment.

    Attributes:
        roots: of the seeds, by step-size; more where curves scatter more. None of them was used before full scale was run with it.
        seeds: of every root.
        given: what differs from the preset.
        processes: one curve of one root each; 1: all in one.
        methods: which of `METHODS`.
    """

    roots: dict[float, tuple[int, ...]]
    seeds: int
    given: dict[str, Any]
    processes: int
    methods: tuple[str, ...]


ROBOT = {"rounds": 8, "eval_every": 1, "eval_episodes": 8}  # 200,000 environment steps a round
SCALES = {
    "smoke": Scale({0.005: (20241,)}, 2, TINY | {"rounds": 6}, 1, ("FedSVRPG-S", "PAvg")),
    "full": Scale({0.001: (8101, 8102), 0.0025: (8101, 8102, 8103), 0.005: (8101, 8102, 8103)}, 4, ROBOT, 16, tuple(METHODS)),
}
NOTES = [
    "Step-sizes: 0.001 is PAvg's preset, 0.005 that of the variants. Differences are paired over seeds; intervals are 95 % each, not "
    "corrected for how many there are.",
    "The variants take PAvg's rounds for the first 128 local steps, here four rounds: what differs comes from the other four.",
    "Seeds are new: roots 7001 to 7008, used while looking for a variant without lag, are not among them.",
]


def measure(size: Scale, tell: Tell) -> dict[tuple[float, str], Curves]:
    """The curves by step-size and method, seeds of all roots joined."""
    groups: dict[str, list[str]] = {}
    for name in size.methods:
        groups.setdefault(METHODS[name][0], []).append(name)
    configs = {algorithm: preset("halfcheetah", algorithm, seeds=size.seeds, **size.given) for algorithm in groups}
    keys = [(eta, root, algorithm) for eta, roots in size.roots.items() for root in roots for algorithm in groups]
    plans = [
        (
            dataclasses.replace(configs[algorithm], seed=root, local_lr=eta),
            {"beta": [METHODS[name][1] for name in groups[algorithm]], "local_lr": [eta] * len(groups[algorithm])},
        )
        for eta, root, algorithm in keys
    ]
    done = learn_all(plans, processes=size.processes, tell=lambda share: tell("HalfCheetah", share))
    found: dict[tuple[float, str], list[Curves]] = {(eta, name): [] for eta in size.roots for name in size.methods}
    for (eta, _, algorithm), curves in zip(keys, done, strict=True):
        for name, one in zip(groups[algorithm], curves, strict=True):
            found[eta, name].append(one)
    return {key: joined(parts) for key, parts in found.items()}


def joined(parts: list[Curves]) -> Curves:
    """Curves of several roots as one, seeds one after the other."""
    return Curves(parts[0].rounds, *(None if column[0] is None else np.concatenate(column) for column in zip(*(p[1:] for p in parts), strict=True)))


def judge(found: dict[tuple[float, str], Curves], judged: bool) -> list[Row]:
    """Returns and differences at every step-size, and at the best step-size of each, over the seeds that both have."""
    rows, ends = [], {key: final(curves) for key, curves in found.items()}
    etas, methods = (list(dict.fromkeys(key[i] for key in found)) for i in (0, 1))

    def compare(quantity: str, name: str, eta: float, ours: np.ndarray, theirs: np.ndarray, **more: Any) -> Row:
        count = min(len(ours), len(theirs))
        lead = estimate(ours[:count] - theirs[:count])
        keys = {"task": "HalfCheetah", "method": name, "beta": METHODS[name][1], "eta": eta, "against": "PAvg", "comparison": "-"}
        return row(quantity, lead, verdict=verdict.above(lead) if judged else None, **keys, **more)

    for eta in etas:
        for quantity, of in (("return over the run", over_run), ("final return", final)):
            values = {name: of(found[eta, name]) for name in methods}
            rows += [
                row(quantity, estimate(value), task="HalfCheetah", method=name, beta=METHODS[name][1], eta=eta) for name, value in values.items()
            ]
            rows += [compare(quantity, name, eta, value, values["PAvg"]) for name, value in values.items() if name != "PAvg"]
    top = {name: max(etas, key=lambda eta: ends[eta, name].mean()) for name in methods}  # noqa: B023
    rows += [
        compare("best final return", name, top[name], ends[top[name], name], ends[top["PAvg"], "PAvg"], against_eta=top["PAvg"])
        for name in methods
        if name != "PAvg"
    ]
    return rows


def run(scale: str, tell: Tell) -> Result:
    """Runs the experiment."""
    size, title = SCALES[scale], "HalfCheetah: the stabilised variants beside PAvg"
    if lacking := presets.missing("halfcheetah"):
        return Result(name="halfcheetah", title=title, scale=scale, settings={}, rows=[], notes=[f"left out: {lacking}"])
    found = measure(size, tell)
    points = [
        each for (eta, name), curves in found.items()
        for each in presets.points(curves, True, task="HalfCheetah", method=name, beta=METHODS[name][1], eta=eta)
    ]  # fmt: skip
    plots = [
        Plot(title=f"eta = {eta:g}", quantity="return", x="x", where={"eta": eta}, x_label="environment steps, thousands") for eta in size.roots
    ]
    settings = {"methods": METHODS, "roots": size.roots, "counted at least": presets.FLOOR["halfcheetah"]}
    settings |= presets.reported(preset("halfcheetah", "fedsvrpg-s", seeds=size.seeds, **size.given))
    notes = NOTES + presets.failures({f"eta {eta:g}, {name}": curves for (eta, name), curves in found.items()})
    return Result(name="halfcheetah", title=title, scale=scale, settings=settings, rows=judge(found, scale == "full"), points=points,
                  plots=plots, notes=notes)  # fmt: skip

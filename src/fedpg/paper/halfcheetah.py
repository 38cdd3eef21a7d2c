"""HalfCheetah: CALM beside PAvg at equal numbers of trajectories, from PAvg's preset step-size to its own.

PAvg is CALM with beta = 1 on the same seeds: as long as it takes PAvg's rounds, here four of eight, their curves are the same.
"""

import dataclasses
from typing import Any

import numpy as np

from fedpg.paper import presets
from fedpg.paper.presets import TINY, Key, difference, final, over_run, preset
from fedpg.paper.results import Result, Row, Tell, row
from fedpg.report.statistics import estimate
from fedpg.runs.sweep import Curves

TITLE = "HalfCheetah: CALM beside PAvg"
METHODS = {"CALM": ("calm", 0.2), "PAvg": ("calm", 1.0)}
"""Algorithm and beta."""
ROBOT = {"rounds": 8, "eval_every": 1, "eval_episodes": 8, "seeds": 4}  # 200,000 environment steps a round
ROOTS = {0.001: (8101, 8102), 0.0025: (8101, 8102, 8103), 0.005: (8101, 8102, 8103)}
"""More seeds where curves scatter more. None was used before full scale was run with it."""
SMOKE = TINY | {"rounds": 6, "seeds": 2}
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {"roots": {0.005: (20241,)}, "given": SMOKE, "processes": 1, "judged": False},
    "full": {"roots": ROOTS, "given": ROBOT, "processes": 16, "judged": True},
}


def joined(parts: list[Curves]) -> Curves:
    """Curves of several roots as one, seeds one after the other."""
    columns = zip(*(part[1:] for part in parts), strict=True)
    return Curves(parts[0].rounds, *(None if own[0] is None else np.concatenate(own) for own in columns))


def judge(found: dict[Key, Curves], judged: bool) -> list[Row]:
    """Returns and differences at every step-size, and at the best step-size of each."""
    rows, plain = [], [key for key in found if key.method == "PAvg"]
    variants = [key for key in found if key not in plain]
    for quantity, of in (("return over the run", over_run), ("final return", final)):
        values = {key: of(curves) for key, curves in found.items()}
        rows += [row(quantity, estimate(value), **key._asdict()) for key, value in values.items()]
        rows += [difference(quantity, values, key, pavg, judged) for key in variants for pavg in plain if pavg.eta == key.eta]
    methods = dict.fromkeys(key.method for key in found)
    top = {name: max((key for key in found if key.method == name), key=lambda key: values[key].mean()) for name in methods}
    pavg = top.pop("PAvg")
    return rows + [difference("best final return", values, top[name], pavg, judged, against_eta=pavg.eta) for name in top]


def run(tell: Tell, roots: dict[float, tuple[int, ...]], given: dict[str, Any], processes: int, judged: bool) -> Result:
    """Runs the experiment.

    Args:
        roots: of the seeds, by step-size.
        given: what differs from the preset.
        processes: one curve of one root each; 1: all methods of an algorithm in one program.
        judged: whether runs are long enough for verdicts.
    """
    if lacking := presets.missing("halfcheetah"):
        return Result(notes=[f"left out: {lacking}"])
    configs = {}
    for eta, own in roots.items():
        for name, (algorithm, beta) in METHODS.items():
            config = preset("halfcheetah", algorithm, beta=beta, local_lr=eta, **given)
            configs |= {(Key("HalfCheetah", name, beta, eta), root): dataclasses.replace(config, seed=root) for root in own}
    parts: dict[Key, list[Curves]] = {}
    for (key, _), one in presets.learn(configs, processes=processes, tell=lambda share: tell("HalfCheetah", share)).items():
        parts.setdefault(key, []).append(one)
    found = {key: joined(own) for key, own in parts.items()}
    return Result(rows=judge(found, judged), points=presets.points(found, True), notes=presets.failures(found),
                  plots=[presets.plot(f"eta = {eta:g}", True, where={"eta": eta}) for eta in roots],
                  settings={"a return counts at least": presets.FLOOR["halfcheetah"]})  # fmt: skip

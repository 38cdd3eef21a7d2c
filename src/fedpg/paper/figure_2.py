"""Figure 2 of the paper (its appendix): CartPole with N = 4, 5 and 8 agents, beta 0.2, both algorithms.

The text says that "all policies with larger N report better performance throughout the iterations", in line with a linear speed-up,
which would halve the rounds from N = 4 to 8: an agent does the same work in a round whatever N is.
"""

from typing import Any

import msgspec

from fedpg.paper import presets, verdict
from fedpg.paper.fits import geometric
from fedpg.paper.presets import SMALL, Key, difference, over_run, preset, rounds_to
from fedpg.paper.results import Figure, Plot, Result, Row, Tell, minus, row, select
from fedpg.report.statistics import estimate
from fedpg.runs.sweep import Curves

TITLE = "Figure 2: CartPole with more agents"
NAMES = {"fedsvrpg-m": "FedSVRPG-M", "fedhapg-m": "FedHAPG-M"}
BETA = 0.2  # "We choose beta = 0.2 to train policies in the ablation study"
LARGE = {"rounds": 40, "eval_every": 2, "seeds": 32, "u0": 1}
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {"algorithms": ("fedsvrpg-m",), "agents": (4, 8), "given": SMALL, "level": 40.0, "judged": False},
    "full": {"algorithms": tuple(NAMES), "agents": (4, 5, 8), "given": LARGE, "level": 90.0, "judged": True},
}


def judge(found: dict[Key, Curves], level: float, judged: bool) -> list[Row]:
    """What the text says of one panel; seeds that never reach the level count the last round."""
    heights, times = ({key: of(curves) for key, curves in found.items()} for of in (over_run, lambda curves: rounds_to(curves, level)))
    rows = [row("rounds to the level", estimate(each), **key._asdict()) for key, each in times.items()]
    least, *others = sorted(found, key=lambda key: key.N)
    rows += [difference("return over the run", heights, key, least, judged) for key in others]
    if others:
        most, ratio = others[-1], geometric(times[least] / times[others[-1]])
        rulings = (verdict.above(ratio, 1.0), verdict.covers(ratio, most.N / least.N)) if judged else (None,)
        rows += [row("speed-up", ratio, against=f"N = {least.N}", comparison="vs", verdict=ruling, **most._asdict()) for ruling in rulings]
    return rows


def run(tell: Tell, algorithms: tuple[str, ...], agents: tuple[int, ...], given: dict[str, Any], level: float, judged: bool) -> Result:
    """Runs the experiment; every algorithm and N is a program, and `level` is the return whose round is looked for."""
    rows, points, notes = [], [], []
    for number, algorithm in enumerate(algorithms):
        configs = {count: preset("cartpole", algorithm, count, **given | {"beta": BETA}) for count in agents}
        keys = {count: Key("CartPole", NAMES[algorithm], BETA, config.local_lr, count) for count, config in configs.items()}
        found = presets.learn({keys[count]: config for count, config in configs.items()},
                              tell=lambda share: tell(NAMES[algorithm], (number + share) / len(algorithms)))  # noqa: B023  # fmt: skip
        rows += judge(found, level, judged)
        points, notes = points + presets.points(found, False), notes + presets.failures(found)
    return Result(rows=rows, points=points, notes=notes)


def figures(result: Result) -> list[Figure]:
    """Learning curves for every N, and below them the same less that of the smallest N."""
    plots, rows, least = [], list(result.points), min(point.N for point in result.points)
    methods = list(dict.fromkeys(point.method for point in result.points))
    for name in methods:
        own = select(result.points, method=name)
        rows += [msgspec.structs.replace(gap, quantity="gap") for gap in minus(own, select(own, N=least), "round")]
    for quantity, label in (("return", "return"), ("gap", f"return, difference from N = {least}")):
        plots += [Plot(title=name, quantity=quantity, x="round", where={"method": name}, series=("N",), y_label=label) for name in methods]
    return [Figure(plots=plots, rows=rows, columns=len(methods))]

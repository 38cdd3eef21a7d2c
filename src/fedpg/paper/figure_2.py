"""Figure 2 of the paper (its appendix): CartPole with N = 4, 5 and 8 agents, beta 0.2, both algorithms."""

from __future__ import annotations

from typing import Any, NamedTuple

from fedpg.paper import presets, verdict
from fedpg.paper.fits import geometric
from fedpg.paper.presets import SMALL, learn, over_run, preset, rounds_to
from fedpg.paper.results import Plot, Result, Row, Tell, row
from fedpg.report.statistics import estimate
from fedpg.runs.sweep import Curves

NAMES = {"fedsvrpg-m": "FedSVRPG-M", "fedhapg-m": "FedHAPG-M"}
BETA = 0.2  # "We choose beta = 0.2 to train policies in the ablation study"


class Scale(NamedTuple):
    """Sizes of the experiment: algorithms, numbers of agents, what differs from the preset, and the return whose round is looked for."""

    algorithms: tuple[str, ...]
    agents: tuple[int, ...]
    given: dict[str, Any]
    level: float


LARGE = {"rounds": 40, "eval_every": 2, "seeds": 32, "u0": "1"}
SCALES = {"smoke": Scale(("fedsvrpg-m",), (4, 8), SMALL, 40.0), "full": Scale(tuple(NAMES), (4, 5, 8), LARGE, 90.0)}
NOTES = [
    "The text says that 'all policies with larger N report better performance throughout the iterations', in line with a linear speed-up, "
    "and gives no numbers. An agent does the same work in a round whatever N is: a linear speed-up would halve the rounds from N = 4 to 8.",
    "Seeds that never reach the level count the last round. Seeds are paired by their initial policy; their agents are not.",
    *presets.NOTES,
]


def judge(name: str, runs: dict[int, Curves], level: float, judged: bool) -> list[Row]:
    """What the text says of one panel; `runs` by N."""
    times, keys = {agents: rounds_to(curves, level) for agents, curves in runs.items()}, {"task": "CartPole", "method": name, "beta": BETA}
    rows = [row("rounds to the level", estimate(each), N=agents, **keys) for agents, each in times.items()]
    least, most = min(runs), max(runs)
    keys |= {"against": f"N = {least}", "comparison": "vs"}
    for agents in sorted(runs)[1:]:
        found = estimate(over_run(runs[agents]) - over_run(runs[least]))
        rows.append(row("return over the run", found, N=agents, verdict=verdict.above(found) if judged else None, **keys | {"comparison": "-"}))
    if most > least:
        ratio = geometric(times[least] / times[most])
        rulings = (verdict.above(ratio, 1.0), verdict.covers(ratio, most / least)) if judged else (None,)
        rows += [row("speed-up", ratio, N=most, verdict=ruling, **keys) for ruling in rulings]
    return rows


def run(scale: str, tell: Tell) -> Result:
    """Runs the experiment."""
    size, judged = SCALES[scale], scale == "full"
    rows, points, plots, notes, settings = [], [], [], list(NOTES), {"beta": BETA, "level": size.level}
    programs = len(size.algorithms) * len(size.agents)
    for algorithm in size.algorithms:
        name, runs = NAMES[algorithm], {}
        for agents in size.agents:
            tell(f"{name}, N = {agents}", (len(plots) * len(size.agents) + len(runs)) / programs)
            config = preset("cartpole", algorithm, agents, **size.given)
            (runs[agents],) = learn(config, {"beta": [BETA], "local_lr": [config.local_lr]})
            points += presets.points(runs[agents], False, task="CartPole", method=name, beta=BETA, N=agents)
        settings[f"CartPole, {name}"] = presets.reported(config) | {"agents": size.agents}
        rows += judge(name, runs, size.level, judged)
        notes += presets.failures({f"{name}, N = {agents}": curves for agents, curves in runs.items()})
        plots.append(Plot(title=f"CartPole, {name}, beta {BETA:g}", quantity="return", x="round", where={"method": name}, series=("N",)))
    return Result(name="figure-2", title="Figure 2: CartPole with more agents", scale=scale, settings=settings, rows=rows, points=points,
                  plots=plots, notes=notes)  # fmt: skip

"""Figure 2 of the paper (its appendix): CartPole with N = 4, 5 and 8 agents, beta 0.2, both algorithms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedpg.paper.claims import LONGER_STEP, PAPER_AND_OURS, TOO_SHORT, difference, failures, height, line, reached, verdict
from fedpg.paper.outcome import Outcome, Row, Tell, row
from fedpg.paper.runs import FLOOR, Run, curves, shown, task
from fedpg.report.figures import Panel
from fedpg.report.stats import Estimate, estimate

ALGORITHMS = {"fedsvrpg-m": "FedSVRPG-M", "fedhapg-m": "FedHAPG-M"}
BETA = 0.2  # "We choose beta = 0.2 to train policies in the ablation study"


class Scale(NamedTuple):
    """Attributes:
    algorithms, agents: what is run, every combination a program of its own.
    given: what differs from the preset.
    level: the return whose round is looked for; of 100.
    """

    algorithms: tuple[str, ...]
    agents: tuple[int, ...]
    given: dict[str, Any]
    level: float


SMALL = {"rounds": 8, "eval_every": 2, "seeds": 3, "batch": 4, "u0": "1", "eval_episodes": 8}
LARGE = {"rounds": 40, "eval_every": 2, "seeds": 32, "u0": "1"}
SCALES = {"smoke": Scale(("fedsvrpg-m",), (4, 8), SMALL, 40.0), "full": Scale(tuple(ALGORITHMS), (4, 5, 8), LARGE, 90.0)}
NOTES = [
    "The text says that 'all policies with larger N report better performance throughout the iterations', in line with a linear speed-up, "
    "and gives no numbers. An agent does the same work in a round whatever N is: a linear speed-up would halve the rounds from N = 4 to 8.",
    "More agents make the mean direction less noisy, not longer. Where the size of the step and not noise limits a run, as here at the "
    "start, N has little to speed up. `fedpg reproduce speedup` measures the theorem's claim where it speaks.",
    "Seeds that never reach the level looked for count the last round. Seeds are paired by their initial policy; their agents are not.",
    *PAPER_AND_OURS,
    LONGER_STEP,
]


def rounds_to(run: Run, level: float) -> np.ndarray:
    """Rounds until the return is at `level`, (S,): at least 1, and the last round for seeds that never are there."""
    return np.clip(reached(run, level), 1.0, run.rounds[-1])


def speed_up(few: np.ndarray, many: np.ndarray) -> Estimate:
    """How many times fewer rounds `many` agents need than `few`, (S,) each: the geometric mean over seeds and its interval."""
    found = estimate(np.log(few / many))
    return Estimate(np.exp(found.mean), np.exp(found.low), np.exp(found.high), found.seeds)


def linearity(found: Estimate, linear: float) -> str:
    """The verdict on a speed-up.

    >>> [linearity(Estimate(0, low, high, 9), 2.0) for low, high in ((0.9, 1.2), (1.1, 1.4), (1.5, 2.5), (0.5, 0.8), (0.5, 2.5))]
    ['none seen', 'some, less than linear', 'linear', 'slower', 'cannot be told']
    """
    if found.low <= linear <= found.high:
        return "linear" if found.low > 1 else "cannot be told"
    if found.low > linear:
        return "more than linear"
    return verdict(found.low - 1, found.high - 1, True, "some, less than linear", "slower", "none seen")


def judge(name: str, runs: dict[int, Run], level: float, judged: bool) -> list[Row]:
    """What the text says of one panel; `runs` by N."""
    rows, times = [], {agents: rounds_to(run, level) for agents, run in runs.items()}
    for agents, run in runs.items():
        never = int((run.total_return.max(1) < level).sum())
        says = f"{never} of {len(times[agents])} seeds never" if never else ""
        rows.append(row(f"{name}, N = {agents}: rounds to {level:g}", estimate(times[agents]), verdict=says))
    least, most = min(runs), max(runs)
    if least == most:
        return rows
    for agents in sorted(runs)[1:]:
        what = f"{name}: mean return over the run, N = {agents} above N = {least}"
        rows.append(difference(what, height(runs[agents]), height(runs[least]), judged))
    ratio = speed_up(times[least], times[most])
    says = linearity(ratio, most / least) if judged else TOO_SHORT
    rows.append(row(f"{name}: speed-up from N = {least} to {most} in rounds to {level:g} (linear: {most / least:g})", ratio, verdict=says))
    return rows


def run(scale: str, tell: Tell) -> Outcome:
    """Runs the experiment."""
    asked, judged = SCALES[scale], scale == "full"
    rows, panels, notes, settings = [], [], list(NOTES), {"beta": BETA, "counted at least": FLOOR["cartpole"]}
    programs = len(asked.algorithms) * len(asked.agents)
    for algorithm in asked.algorithms:
        name, runs = ALGORITHMS[algorithm], {}
        for agents in asked.agents:
            tell(f"{name}, N = {agents}", (len(panels) * len(asked.agents) + len(runs)) / programs)
            config = task("cartpole", algorithm, agents, **asked.given)
            (runs[agents],) = curves(config, {"beta": [BETA]})
        settings[f"CartPole, {name}"] = shown(config) | {"agents": asked.agents}
        rows += judge(name, runs, asked.level, judged)
        notes += failures({f"{name}, N = {agents}": one for agents, one in runs.items()})
        lines = [line(f"N = {agents}", one, one.rounds) for agents, one in runs.items()]
        panels.append(Panel(f"CartPole, {name}, beta {BETA:g}", "rounds", "return", lines))
    return Outcome("figure-2", "Figure 2: CartPole with more agents", scale, settings, rows, notes, panels)

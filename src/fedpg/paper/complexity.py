"""Sample complexity: trajectories of the whole federation against the eps they buy, beside the theorem's eps^(-3/2).

Runs of R rounds for a range of R, each with the steps for its R, as in `speedup`; N and K stay. eps is the mean over rounds of
|grad J(theta_r)|^2. Plain averaging (PAvg) needs eps^(-2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedpg.algorithms import fedhapg_m, fedsvrpg_m, fedsvrpg_s
from fedpg.paper.fits import power_lines, verdict
from fedpg.paper.grounds import GROUNDS, Ground
from fedpg.paper.hindsight import EDGE, MARK, field, over_eps, searches
from fedpg.paper.laws import SMALL, Law, law, times_fewer
from fedpg.paper.outcome import Outcome, Row, Tell
from fedpg.paper.prescribed import BOLD, VARIANTS, Steps
from fedpg.paper.rates import Measured, measure, weights_at_worst
from fedpg.report.figures import Line, Panel

PROMISED, TOLERANCE = 1.5, 0.2
STABILISED_BETA = 0.2
LEFT_OUT = "FedSVRPG-M, eta as stated"
"""The variant that is shown in `speedup` only."""
UNPROMISED = ("PAvg", "FedSVRPG-S")
NOTES = [
    "eps is the mean over all R rounds of |grad J(theta_r)|^2, exact, averaged over seeds: what the theorem bounds. Each point is a run of "
    f"its own R with the steps for it. Slopes: log samples against log 1/eps, over runs with eps below |grad J(theta_0)|^2/{SMALL:g}.",
    "FedSVRPG-M: beta, lambda and B as the theorem's formulas have them, 1/24 and 162 included, with the problem's own L, S, sigma and "
    f"Delta; nothing was tuned. bold: lambda {BOLD:g} times larger. PAvg: the lambda that is best for it in theory. See `speedup`.",
    "random MDP: a softmax policy turns deterministic as it learns, so sigma and S fall and noise vanishes where the theorem assumes it "
    "stays. The theorem's bound need not be tight there.",
]
MORE_NOTES = [
    "best of ... steps: the fewest samples to each eps over a grid of beta and lambda, chosen afterwards. Where its slope "
    "is that of the prescribed steps, the slope is the algorithm's own; where it is smaller, the prescription asks for more than needed.",
    "FedSVRPG-S has no correction: its direction averages fresh gradients, so that it removes the bias of local steps but keeps the "
    "rate of PAvg. It runs with PAvg's lambda.",
]
LEFT_OUT_NOTE = "Left out at this scale: FedHAPG-M, FedSVRPG-S and the search over step-sizes."


class Scale(NamedTuple):
    """Attributes:
    samples: by name of the ground, the largest N K R; smaller ones by factors of 2.
    lengths: how many R.
    seeds: repetitions.
    more: also other algorithms, and the best of a grid of step-sizes.
    agents, local_steps: N, K.
    """

    samples: dict[str, int]
    lengths: int
    seeds: int
    more: bool
    agents: int = 8
    local_steps: int = 2


SCALES = {
    "smoke": Scale({"bowls": 32_768, "mdp": 32_768}, 4, 8, more=False),
    "full": Scale({"bowls": 262_144, "mdp": 262_144}, 7, 24, more=True),
}


def runs_of(scale: Scale, ground: Ground, samples: int, tell: Callable[[float], None]) -> tuple[dict[str, Steps], dict[str, Measured]]:
    """Every method on one ground: with which steps, and what came of them."""
    size = {"agents": scale.agents, "local_steps": scale.local_steps}
    rounds = np.round(samples * 2.0 ** np.arange(1 - scale.lengths, 1) / (scale.agents * scale.local_steps)).astype(int)
    parts = {name: make(ground.known, **size, rounds=rounds) for name, make in VARIANTS.items() if name != LEFT_OUT}
    if not scale.more:
        return parts, measure(ground, fedsvrpg_m, parts, **size, seeds=scale.seeds, tell=tell)
    grids = searches(ground.known, **size, rounds=int(rounds[-1]))
    others = {
        "FedHAPG-M, bold": parts["FedSVRPG-M, bold"],
        "FedSVRPG-S": parts["PAvg"]._replace(beta=np.full(len(rounds), STABILISED_BETA)),
    }
    programs = [
        (fedsvrpg_m, parts | grids),
        *zip((fedhapg_m, fedsvrpg_s), ({name: steps} for name, steps in others.items()), strict=True),
    ]
    found = {}
    for number, (make, own) in enumerate(programs):
        done = number / len(programs)
        found |= measure(ground, make, own, **size, seeds=scale.seeds, tell=lambda share: tell(done + share / len(programs)))  # noqa: B023
    return parts | grids | others, found


def laws_of(scale: Scale, parts: dict[str, Steps], runs: dict[str, Measured]) -> dict[str, Law]:
    """The law of every method."""
    found = {name: law(run, scale.agents, None if name in UNPROMISED else PROMISED) for name, run in runs.items() if MARK not in name}
    for name in [name for name in runs if MARK in name]:
        like = found["PAvg" if name.startswith("PAvg") else "FedSVRPG-M, bold"]  # its eps, but for the last, are within reach
        best = over_eps(field(runs[name], parts[name], scale.agents, scale.local_steps), like.eps[:-1])
        found[name] = Law(best.samples.value, like.eps[:-1], best.slope, like.promised, EDGE if best.edge else "")
    return found


def rows_of(ground: Ground, laws: dict[str, Law], runs: dict[str, Measured]) -> list[Row]:
    """Every slope, and what PAvg costs beside bold momentum."""
    eps, ratio = times_fewer(runs["FedSVRPG-M, bold"], runs["PAvg"])
    what = f"{ground.name}: samples of PAvg / FedSVRPG-M, bold (eps {eps:.2g})"
    judged = "momentum needs fewer" if ratio.low > 1.0 else "momentum needs more" if ratio.high < 1.0 else "no clear difference"
    compared = Row(what, *map(float, ratio[:3]), ratio.seeds, verdict=judged)
    return [row(ground, name, laws[name]) for name in runs] + [compared]


def row(ground: Ground, name: str, one: Law) -> Row:
    """The slope of one method, beside the promised one."""
    judged = "for comparison" if one.promised is None else verdict(one.slope, one.promised, TOLERANCE)
    if one.promised is not None and one.slope.high < one.promised - TOLERANCE:
        judged = "better than promised"
    return Row(f"{ground.name}: {name}", *map(float, one.slope[:3]), one.slope.seeds, one.promised, verdict=judged + one.remark)


def panel(ground: Ground, found: dict[str, Law]) -> Panel:
    """Samples against eps, with fitted lines and one of slope -3/2."""
    lines = [part for name, one in found.items() for part in power_lines(name, one.eps, one.samples)]
    first = next(iter(found.values()))
    lines.append(Line("slope -3/2", first.eps, 0.5 * first.samples[0] * (first.eps / first.eps[0]) ** -PROMISED, style="--"))
    return Panel(ground.name, "eps: mean over rounds of |grad J|^2", "samples of the federation", lines, x_log=True, y_log=True)


def run(scale: str, tell: Tell) -> Outcome:
    """The experiment."""
    chosen = SCALES[scale]
    rows, panels, constants = [], [], {}
    for number, (name, samples) in enumerate(chosen.samples.items()):
        begun = number / len(chosen.samples)
        tell(f"constants of {name}", begun)
        ground = GROUNDS[name]()
        what = f"{ground.name}, N = {chosen.agents}"
        parts, runs = runs_of(chosen, ground, samples, lambda share: tell(what, begun + share / len(chosen.samples)))  # noqa: B023
        laws = laws_of(chosen, parts, runs)
        rows += rows_of(ground, laws, runs)
        panels.append(panel(ground, laws))
        constants[name] = ground.known._asdict() | weights_at_worst(
            [runs[name] for name in laws if laws[name].promised and MARK not in name]
        )
    tell("done", 1.0)
    title = "Samples against the mean |grad J|^2 they buy"
    notes = [*NOTES, *(MORE_NOTES if chosen.more else [LEFT_OUT_NOTE])]
    return Outcome("complexity", title, scale, chosen._asdict() | {"constants": constants, "bold": BOLD}, rows, notes, panels)

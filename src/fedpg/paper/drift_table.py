"""The table and the pictures of `drift`, from J of every algorithm."""

from __future__ import annotations

import numpy as np

from fedpg.paper import contest
from fedpg.paper.conflict import HESSIAN, STABLE
from fedpg.paper.contest import Contest
from fedpg.paper.outcome import Row, row
from fedpg.report.figures import Panel

MANY = 32
"""The K at which all algorithms are compared."""
LOSS, LEAD, KEPT = 1.0, 1.0, 0.1
"""Where PAvg has lost LOSS from its best J, the variant should lead by LEAD and have lost less than KEPT from its own."""
VARIANTS, THEIRS = (STABLE.label, HESSIAN.label), "PAvg"

Found = dict[tuple[str, int], np.ndarray]
"""J by (label, K), axes (looks, E, S); the last look is after the last round."""


def between(etas: np.ndarray, found: Found, ours: str, k: int, look: int = -1) -> Contest:
    """A variant against PAvg."""
    return Contest(etas, found[ours, k][look], found[THEIRS, k][look])


def everywhere(what: str, ours: str, one: Contest) -> Row:
    """The step-size that speaks most against the variant."""
    at, difference, verdict = contest.worst(one)
    return row(f"{what}: {ours} - {THEIRS}, worst eta ({one.etas[at]:.3g})", difference, verdict=verdict)


def where_it_is_lost(ours: str, one: Contest, at: int) -> list[Row]:
    """What the variant does at step-size number `at`, where PAvg has lost LOSS."""
    eta, lead, kept = f"K={MANY}, eta={one.etas[at]:.3g}", contest.over_seeds(one.ours[at] - one.theirs[at]), contest.lost(one.ours, at)
    return [
        row(f"{eta}: {ours} - {THEIRS}, at least {LEAD:g}", lead, verdict=contest.above(lead, LEAD)),
        row(f"{eta}: lost by {ours} from its best, less than {KEPT:g}", kept, verdict=contest.below(kept, KEPT)),
    ]


def comparison(etas: np.ndarray, found: Found, ours: str, at: int | None) -> list[Row]:
    """A variant against PAvg for every K, and at K = MANY where PAvg has lost LOSS and early in the run."""
    table = []
    for k in sorted({k for label, k in found if label == ours}):
        one = between(etas, found, ours, k)
        best = contest.best_difference(one)
        table.append(everywhere(f"K={k}", ours, one))
        table.append(row(f"K={k}: best over eta, {ours} - {THEIRS}", best, verdict=contest.higher(best)))
    if at is not None:
        table += where_it_is_lost(ours, between(etas, found, ours, MANY), at)
    return [*table, everywhere(f"K={MANY}, after 3/10 of the rounds", ours, between(etas, found, ours, MANY, 0))]


def rows(etas: np.ndarray, found: Found) -> tuple[list[Row], list[str]]:
    """All rows on sampled gradients, and what must be said about them."""
    plain, notes = found[THEIRS, MANY][-1], []
    at = contest.first_loss(plain, LOSS)
    table = [each for ours in VARIANTS if (ours, MANY) in found for each in comparison(etas, found, ours, at)]
    if at is None:
        notes.append(f"At K={MANY} {THEIRS} loses less than {LOSS:g} beyond its best step-size on this grid: nothing to compare there.")
    else:
        table.append(row(f"K={MANY}, eta={etas[at]:.3g}: lost by {THEIRS} from its best", contest.lost(plain, at)))
    for (label, k), values in found.items():
        if k != MANY:
            continue
        top = contest.best(values[-1])
        table.append(row(f"K={k}, {label}: best J (eta={etas[top]:.3g})", contest.over_seeds(values[-1][top])))
        if at is not None:
            table.append(row(f"K={k}, {label}: J at eta={etas[at]:.3g}", contest.over_seeds(values[-1][at])))
    return table, notes + contest.failures({f"{label}, K={k}": values[-1] for (label, k), values in found.items()})


def _style(label: str) -> str:
    """The Hessian's are dashed, so that FedSVRPG-S can be seen where both coincide."""
    return "o--" if label.startswith("FedHAPG") else "o-"


def pictures(etas: np.ndarray, found: Found, compared: list[str]) -> list[Panel]:
    """J against eta: the algorithms `compared` at K = MANY, FedSVRPG-S and PAvg at every K, and what is left at K = MANY."""
    at_many = {label: values[-1] for (label, k), values in found.items() if k == MANY}
    axes = {"x_label": "eta", "y_label": "J after the last round", "x_log": True}
    drawn = [contest.line(label, etas, values, _style(label)) for label, values in at_many.items() if label in compared]
    panels = [Panel(f"Sampled gradients, K = {MANY}", lines=drawn, **axes)]
    counts = sorted({k for _, k in found})
    if len(counts) > 1:
        lines = [
            contest.line(f"{label}, K={k}", etas, found[label, k][-1], style)
            for label, style in ((VARIANTS[0], "o-"), (THEIRS, "o--"))
            for k in counts
        ]
        panels.append(Panel("Sampled gradients, any K", lines=lines, **axes))
    others = [label for label in at_many if label not in compared]
    for title, chosen in (
        (f"Ablation, K = {MANY}", [label for label in others if "no baseline" not in label]),
        (f"Without a baseline, K = {MANY}", [label for label in others if "no baseline" in label]),
    ):
        if chosen:
            panels.append(
                Panel(title, lines=[contest.line(label, etas, at_many[label], _style(label)) for label in (VARIANTS[0], *chosen)], **axes)
            )
    return panels

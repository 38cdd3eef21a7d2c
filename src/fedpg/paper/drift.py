"""Many local steps on agents that conflict: what every algorithm makes of a step-size, and where it settles without noise."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from fedpg.paper import drift_table, floor_law, floors
from fedpg.paper.conflict import BATCH, BETA, DISCOUNT, HESSIAN, HORIZON, PLAIN, STABLE, TUNED_ON, Method, Task, objectives
from fedpg.paper.drift_table import MANY, VARIANTS, Found
from fedpg.paper.kept import part
from fedpg.paper.outcome import Outcome, Row, Tell

ROOT = 0
PRINTED = Method("FedSVRPG-M", "fedsvrpg-m")
RIVALS = (
    PRINTED, Method("FedSVRPG-M, truncated", "fedsvrpg-m", weights="truncated"),
    Method("FedHAPG-M", "fedhapg-m"), Method("heavy ball", "heavy-ball"), HESSIAN,
)  # fmt: skip
LOOKS_BACK = (
    *(Method(f"FedSVRPG-S, {lookback}", lookback=lookback) for lookback in ("memory", "sample", "fitted")),
    Method("FedHAPG-S, sample", "fedhapg-s", lookback="sample"),
)
NO_BASELINE = tuple(
    dataclasses.replace(method, label=f"{method.label}, no baseline", baseline="none") for method in (STABLE, HESSIAN, *LOOKS_BACK)
)


class Size(NamedTuple):
    """Attributes:
    rounds: R; there is an early look at 3/10 of them.
    seeds, etas: of the comparison with sampled gradients.
    local_steps: K, MANY among them.
    rivals, ablation: what runs beside PAvg and FedSVRPG-S at K = MANY.
    betas: of FedSVRPG-S there, besides 0.2 and 1.
    floor_seeds, floor_rounds, floor_betas: with exact gradients.
    floor_steps: other K, for PAvg.
    places: what is measured with exact gradients: problem, algorithms.
    """

    rounds: int
    seeds: int
    etas: tuple[float, ...]
    local_steps: tuple[int, ...]
    rivals: tuple[Method, ...]
    ablation: tuple[Method, ...]
    betas: tuple[float, ...]
    floor_seeds: int
    floor_rounds: int
    floor_betas: tuple[float, ...]
    floor_steps: tuple[int, ...]
    places: tuple[tuple[floors.Place, tuple[str, ...]], ...]


BOTH = (floors.PRINTED, floors.STABLE)
SIZES = {
    "smoke": Size(
        100, 8, (0.001, 0.01, 0.0316, 0.1), (MANY,), (), (), (),
        8, 200, (0.1, 0.3, 1.0), (), ((floors.BOWLS, BOTH), (floors.DOORS, BOTH[1:])),
    ),
    "full": Size(
        100, 64, tuple(np.logspace(-3, -1, 9)), (1, 8, MANY, 64), RIVALS, LOOKS_BACK + NO_BASELINE, (0.05, 0.5),
        64, 1600, (0.03, 0.1, 0.3, 1.0), (2, 32), ((floors.BOWLS, tuple(floors.ALGORITHMS)), (floors.DOORS, tuple(floors.ALGORITHMS))),
    ),
}  # fmt: skip
NOTES = [
    f"Tuning set, named because a win on it proves little: {TUNED_ON}. What was not looked at: `held-out`.",
    "All algorithms see the same agents and random numbers; differences are paired by seed. Importance weights are those of the whole "
    "trajectory unless it says truncated. PAvg is run as FedSVRPG-S with beta = 1: the same numbers, in the same program.",
    floor_law.NOTE,
    "Doors: a corridor in which every agent needs another action to pass, so that the best common policy is stochastic and J has its "
    "peak at finite logits; on `conflict` it lies at infinity, where grad J vanishes for everybody.",
]


def labels(method: Method) -> list[str]:
    """What to call a method at each of its betas."""
    named = {BETA: method.label, PLAIN: method.label.replace(STABLE.label, "PAvg")}
    return [named.get(beta, f"{method.label}, beta={beta:g}") for beta in method.betas]


def programs(size: Size) -> list[tuple[Method, int]]:
    """What is run with sampled gradients: method and K."""
    at_many = (dataclasses.replace(STABLE, betas=STABLE.betas + size.betas), *size.rivals, *size.ablation)
    return [(method, k) for k in size.local_steps for method in (at_many if k == MANY else (STABLE, HESSIAN, PRINTED))]


def sampled(size: Size, tell: Tell, until: float) -> Found:
    """J by (label, K), axes (early and last round, E, S); only PAvg and the variants are looked at twice."""
    found, listed = {}, programs(size)
    for number, (method, k) in enumerate(listed):
        what, task = f"{method.label}, K={k}", Task(local_steps=k, rounds=size.rounds)
        looks = (max(1, 3 * size.rounds // 10), size.rounds) if method.label in VARIANTS else (size.rounds,)
        tell(what, until * number / len(listed))
        objective = objectives(task, method, np.array(size.etas), seeds=size.seeds, root=ROOT, rounds=looks)
        found |= {(label, k): values.swapaxes(0, 1) for label, values in zip(labels(method), objective, strict=True)}
    return found


def floor(place: floors.Place, name: str, betas: tuple[float, ...], **given: int) -> floors.Floors:
    """`floors.measure`, kept until the experiment is done."""
    return part(("floors", place.label, name, betas, given), lambda: floors.measure(place, name, betas, **given))


def settled(size: Size, tell: Tell, since: float) -> tuple[dict[str, dict[str, floors.Floors]], list[Row], list[str]]:
    """Floors with exact gradients by problem and algorithm, what they say, and how still they stood."""
    found, rows, notes = {}, [], []
    for number, (place, names) in enumerate(size.places):
        tell(f"floors on {place.label}", since + (1.0 - since) * number / len(size.places))
        given = {"rounds": size.floor_rounds, "seeds": size.floor_seeds, "root": ROOT}
        extra = {floors.MEMORY: (0.0,)}  # who moves along its own gradient by beta only must have another use for it
        one = {name: floor(place, name, size.floor_betas + extra.get(name, ()), **given) for name in names}
        more = [floor(place, floors.STABLE, (1.0,), local_steps=k, **given) for k in size.floor_steps]
        rows += floor_law.law(place.label, one) + [floor_law.same_length(place.label, one[floors.STABLE], other) for other in more]
        moved = max(floor.unsettled for floor in (*one.values(), *more))
        notes.append(f"Floors on {place.label} changed by at most {moved:.1g} of themselves over the last tenth of the run.")
        found[place.label] = one
    return found, rows, notes


def run(scale: str, tell: Tell) -> Outcome:
    """The experiment."""
    size = SIZES[scale]
    etas, found = np.array(size.etas), sampled(size, tell, until=0.8)
    exact, exact_rows, exact_notes = settled(size, tell, since=0.8)
    rows, notes = drift_table.rows(etas, found)
    if missing := [method.label for method in RIVALS if (method.label, MANY) not in found]:
        notes.append(f"Left out at this scale: {'; '.join(missing)}; the ablation; other K.")
    settings = {
        "env": "conflict", "agents": Task().agents, "heterogeneity": Task().heterogeneity, "horizon": HORIZON, "discount": DISCOUNT,
        "batch": BATCH, "baseline": STABLE.baseline, "rounds": size.rounds, "beta": BETA, "seeds": size.seeds, "root": ROOT,
        "local_lr": etas, "local_steps": list(size.local_steps), "global_lr": "eta K", "u0": "-M: ceil(K/(R beta^2)) batches",
        "exact": {"local_steps": floors.LOCAL_STEPS, "rounds": size.floor_rounds, "seeds": size.floor_seeds, "betas": size.floor_betas},
    }  # fmt: skip
    panels = drift_table.pictures(etas, found, [label for method in (STABLE, *size.rivals) for label in labels(method)])
    panels += floor_law.pictures(exact)
    title = "Many local steps on agents that conflict"
    return Outcome("drift", title, scale, settings, rows + exact_rows, NOTES + notes + exact_notes, panels)

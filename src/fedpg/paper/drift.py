"""Many local steps on agents that conflict: J of every algorithm for each step-size, and where it settles without noise."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from fedpg.paper import compare, fixed_points, verdict
from fedpg.paper.fixed_points import DOORS, QUADRATICS, Place
from fedpg.paper.method import BETA, FEDHAPG_M, FEDHAPG_S, FEDSVRPG_M, FEDSVRPG_S, HEAVY_BALL, Method
from fedpg.paper.results import Plot, Result, Row, Tell, line, over_seeds, row
from fedpg.paper.task import Task, measure
from fedpg.runs.sweep import grid
from fedpg.theory import initial_batches

CONFLICT, MANY = Task("conflict"), 32
"""The K at which all methods are compared."""
LOSS, LEAD, KEPT = 1.0, 1.0, 0.1
"""Where PAvg has lost LOSS from its best J, a variant must lead by LEAD and have lost less than KEPT from its own."""
TUNED_ON = (
    "conflict with heterogeneity 0.7, 1 and 1.3, 5 states and 5 actions or 8 and 4, N=3, 4, 5, 10 and 20, K=1, 4, 8, 16, 32, 64 and 128, "
    "random-mdp with own rewards, seeds of roots 3, 7 and 77003, eta from 1e-3 to 4e-1, and CartPole with heterogeneity 2"
)
"""What was looked at while the stabilised variants were designed."""
PRINTED, RIVALS = FEDSVRPG_M, (FEDSVRPG_M.but("FedSVRPG-M, truncated", importance="truncated"), FEDHAPG_M, HEAVY_BALL)
LOOKBACKS = (
    *(FEDSVRPG_S.but(f"FedSVRPG-S, {name}", {"lookback": name}) for name in ("memory", "sample", "fitted")),
    FEDHAPG_S.but("FedHAPG-S, sample", {"lookback": "sample"}),
)
Names = dict[float, str]
"""What a method is called at each beta that it runs with; FedSVRPG-S at beta = 1 is PAvg."""


class Scale(NamedTuple):
    """Sizes of the experiment.

    Attributes:
        rounds: R; PAvg and the variants are also evaluated after 3/10 of them.
        seeds, etas: with sampled gradients.
        local_steps: K, MANY among them.
        ablation: whether everything else runs at K = MANY: rivals, lookbacks, other beta, no baseline.
        rest_seeds, rest_rounds, betas: with exact gradients.
        other_steps: other K of PAvg with exact gradients.
        places: what is measured with exact gradients, and with which methods.
    """

    rounds: int
    seeds: int
    etas: tuple[float, ...]
    local_steps: tuple[int, ...]
    ablation: bool
    rest_seeds: int
    rest_rounds: int
    betas: tuple[float, ...]
    other_steps: tuple[int, ...]
    places: tuple[tuple[Place, tuple[Method, ...]], ...]


SCALES = {
    "smoke": Scale(100, 8, (0.001, 0.01, 0.0316, 0.1), (MANY,), False, 8, 200, (0.1, 0.3, 1.0), (),
                   ((QUADRATICS, (FEDSVRPG_M, FEDSVRPG_S)), (DOORS, (FEDSVRPG_S,)))),
    "full": Scale(100, 64, tuple(np.logspace(-3, -1, 9)), (1, 8, MANY, 64), True, 64, 1600, (0.03, 0.1, 0.3, 1.0), (2, 32),
                  ((QUADRATICS, fixed_points.VARIANTS), (DOORS, fixed_points.VARIANTS))),
}  # fmt: skip
NOTES = [
    f"Tuning set, named because a win on it proves little: {TUNED_ON}. What was not looked at: `held-out`.",
    "All methods see the same agents and random numbers; differences are paired by seed. PAvg is FedSVRPG-S with beta = 1.",
]


def programs(scale: Scale) -> list[tuple[Method, Names, int]]:
    """What is run with sampled gradients: method, its names by beta, and K."""
    both = {BETA: FEDSVRPG_S.name, 1.0: "PAvg"}
    listed: list[tuple[Method, Names, int]] = []
    for k in scale.local_steps:
        if k != MANY or not scale.ablation:
            others = (FEDHAPG_S, PRINTED) if scale.ablation else ()
            listed += [(FEDSVRPG_S, both, k), *((method, {BETA: method.name}, k) for method in others)]
            continue
        listed.append((FEDSVRPG_S, both | {0.05: FEDSVRPG_S.name, 0.5: FEDSVRPG_S.name}, k))
        listed += [(method, {BETA: method.name}, k) for method in (PRINTED, *RIVALS, FEDHAPG_S, *LOOKBACKS)]
        for method in (FEDSVRPG_S, FEDHAPG_S, *LOOKBACKS):
            bare = method.but(f"{method.name}, no baseline", baseline="none")
            listed.append((bare, {BETA: bare.name} | ({1.0: "PAvg, no baseline"} if method is FEDSVRPG_S else {}), k))
    return listed


Found = dict[tuple[str, float, int], np.ndarray]
"""J by (method, beta, K), axes (rounds, E, S); the last entry is after the last round."""


def sampled(scale: Scale, tell: Tell) -> Found:
    """J of every program; PAvg and the variants have an early evaluation too."""
    found, listed = {}, programs(scale)
    for number, (method, names, k) in enumerate(listed):
        tell(f"{method.name}, K={k}", 0.8 * number / len(listed))
        task = dataclasses.replace(CONFLICT, local_steps=k, rounds=scale.rounds)
        when = [max(1, 3 * scale.rounds // 10), scale.rounds] if method in (FEDSVRPG_S, FEDHAPG_S) else [scale.rounds]
        printed = {"u0_batches": initial_batches(k, scale.rounds, BETA)} if method.algorithm in ("fedsvrpg-m", "fedhapg-m") else {}
        settings = grid(beta=list(names), local_lr=scale.etas)
        objective = measure(task, method, settings, seeds=scale.seeds, rounds=when, **printed).objective  # (P, S, T)
        by_beta = objective.reshape(len(names), len(scale.etas), scale.seeds, len(when))
        found |= {(name, beta, k): np.moveaxis(each, -1, 0) for (beta, name), each in zip(names.items(), by_beta, strict=True)}
    return found


def judge(etas: np.ndarray, found: Found, rounds: int) -> list[Row]:
    """All rows on sampled gradients: the variants against PAvg, and J of every method at K = MANY."""
    rows, plain = [], found["PAvg", 1.0, MANY][-1]
    at = compare.first_loss(plain, LOSS)
    for name in (FEDSVRPG_S.name, FEDHAPG_S.name):
        keys = {"task": CONFLICT.name, "method": name, "beta": BETA}
        for k in sorted(k for method, beta, k in found if (method, beta) == (name, BETA)):
            ours, theirs = found[name, BETA, k], found["PAvg", 1.0, k]
            rows.append(compare.at_worst(etas, ours[-1], theirs[-1], K=k, round=rounds, **keys))
            rows.append(compare.at_best(etas, ours[-1], theirs[-1], K=k, round=rounds, **keys))
            if k == MANY:
                rows.append(compare.at_worst(etas, ours[0], theirs[0], K=k, round=max(1, 3 * rounds // 10), **keys))
            if k == MANY and at is not None:
                lead, lost = over_seeds(ours[-1][at] - theirs[-1][at]), compare.loss(ours[-1], at)
                keys |= {"K": k, "eta": float(etas[at]), "round": rounds}
                rows.append(row("objective", lead, verdict=verdict.above(lead, LEAD), **compare.PAVG, **keys))
                rows.append(row("loss", lost, verdict=verdict.below(lost, KEPT), **keys))
                keys = {"task": CONFLICT.name, "method": name, "beta": BETA}
    keys = {"task": CONFLICT.name, "K": MANY, "round": rounds}
    if at is not None:
        rows.append(row("loss", compare.loss(plain, at), method="PAvg", beta=1.0, eta=float(etas[at]), **keys))
    for (name, beta, k), values in found.items():
        if k == MANY:
            top, keys = compare.best(values[-1]), keys | {"method": name, "beta": beta}
            rows.append(row("best objective", over_seeds(values[-1][top]), eta=float(etas[top]), **keys))
            if at is not None:
                rows.append(row("objective", over_seeds(values[-1][at]), eta=float(etas[at]), **keys))
    return rows


def plots(methods: list[str]) -> list[Plot]:
    """J against eta: all methods at K = MANY, FedSVRPG-S and PAvg at every K, the ablation, and without a baseline."""
    compared, ablation = (FEDSVRPG_S.name, "PAvg", PRINTED.name, *(method.name for method in RIVALS), FEDHAPG_S.name), (FEDSVRPG_S.name,)
    ablation += tuple(method.name for method in LOOKBACKS)
    bare = tuple(name for name in methods if name.endswith("no baseline"))
    at_many, given = {"K": MANY, "against": ""}, {"quantity": "objective", "x": "eta", "x_log": True}
    drawn = [
        Plot(title=f"Sampled gradients, K = {MANY}", where=at_many | {"method": compared, "beta": [BETA, 1.0]}, **given),
        Plot(title="Sampled gradients, any K", where={"against": "", "method": compared[:2], "beta": [BETA, 1.0]}, series=("method", "K"), **given),
        Plot(title=f"Ablation, K = {MANY}", where=at_many | {"method": ablation}, series=("method", "beta"), **given),
        Plot(title=f"Without a baseline, K = {MANY}", where=at_many | {"method": (FEDSVRPG_S.name, *bare), "beta": [BETA, 1.0]}, **given),
    ]  # fmt: skip
    return drawn if bare else drawn[:1]


def run(scale: str, tell: Tell) -> Result:
    """Runs the experiment."""
    size = SCALES[scale]
    etas, found = np.array(size.etas), sampled(size, tell)
    rows, notes = judge(etas, found, size.rounds), list(NOTES)
    points = [
        each for (name, beta, k), values in found.items()
        for each in line("objective", over_seeds(values[-1]), "eta", etas, task=CONFLICT.name, method=name, beta=beta, K=k, round=size.rounds)
    ]  # fmt: skip
    notes += compare.failures({f"{name}, beta {beta:g}, K={k}": values[-1] for (name, beta, k), values in found.items()})
    for number, (place, methods) in enumerate(size.places):
        tell(f"exact gradients on {place.task.name}", 0.8 + 0.2 * number / len(size.places))
        given = {"rounds": size.rest_rounds, "seeds": size.rest_seeds}
        extra = {fixed_points.MEMORY.name: (0.0,)}  # without its own gradient it still uses its memory
        rest = {method.name: fixed_points.settle(place, method, size.betas + extra.get(method.name, ()), **given) for method in methods}
        other = {k: fixed_points.settle(place, FEDSVRPG_S, (1.0,), local_steps=k, **given) for k in size.other_steps}
        rows += fixed_points.laws(place.task.name, rest)
        rows += [fixed_points.same_path(place.task.name, rest[FEDSVRPG_S.name], floor, k) for k, floor in other.items()]
        points += fixed_points.points(place.task.name, rest)
        moved = max(floor.moved for floor in (*rest.values(), *other.values()))
        notes.append(f"|grad J|^2 at rest on {place.task.name} changed by at most {moved:.1g} of itself over the last tenth of the run.")
    settings = dataclasses.asdict(CONFLICT) | {name: getattr(size, name) for name in ("rounds", "seeds", "etas", "local_steps")}
    settings |= {"root": 0, "beta": BETA, "global_lr": "eta K", "exact": {name: getattr(size, name) for name in ("rest_rounds", "rest_seeds", "betas")}}
    title = "Many local steps on agents that conflict"
    return Result(name="drift", title=title, scale=scale, settings=settings, rows=rows, points=points, notes=notes,
                  plots=plots([name for name, *_ in found]) + fixed_points.PLOTS)  # fmt: skip

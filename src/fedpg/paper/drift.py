"""Many local steps on agents that conflict: J of every algorithm for each step-size, and where it settles without noise.

J comes as an array (E, S): E step-sizes in rising order, S seeds with common random numbers, so that differences are paired.
A seed that failed is NaN and left out of what it would have entered.
"""

import dataclasses
from typing import Any

import numpy as np

from fedpg.paper import fixed_points, verdict
from fedpg.paper.fixed_points import DOORS, QUADRATICS
from fedpg.paper.method import BETA, CALM, FEDHAPG_M, FEDSVRPG_M, HEAVY_BALL, PAVG, Method
from fedpg.paper.results import Plot, Result, Row, Tell, line, over_seeds, row
from fedpg.paper.task import Task, measure
from fedpg.report.statistics import Estimate
from fedpg.runs.sweep import grid
from fedpg.theory import initial_batches

TITLE = "Many local steps on agents that conflict"
CONFLICT, MANY = Task("conflict"), 32
"""The task, and the K at which all methods are compared."""
LOSS, LEAD, KEPT = 1.0, 1.0, 0.1
"""Where PAvg has lost LOSS from its best J, a variant must lead by LEAD and have lost less than KEPT from its own."""
RIVALS = (FEDSVRPG_M.but("FedSVRPG-M, truncated", importance="truncated"), FEDHAPG_M, HEAVY_BALL)
BARE = tuple(method.but(f"{method.name}, no baseline", baseline="none") for method in (CALM, PAVG))
AGAINST_PAVG = {"against": "PAvg", "comparison": "-"}
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "rounds": 100, "seeds": 8, "etas": (0.001, 0.01, 0.0316, 0.1), "local_steps": (MANY,), "ablation": False,
        "rest": {"rounds": 200, "seeds": 8, "betas": (0.1, 0.3, 1.0)}, "other_steps": (),
    },
    "full": {
        "rounds": 100, "seeds": 64, "etas": tuple(np.logspace(-3, -1, 9)), "local_steps": (1, 8, MANY, 64), "ablation": True,
        "rest": {"rounds": 1600, "seeds": 64, "betas": (0.03, 0.1, 0.3, 1.0)}, "other_steps": (2, 32),
    },
}  # fmt: skip

Found = dict[tuple[str, float], np.ndarray]
"""J by method and beta, axes (evaluated rounds, E, S); the last entry is after the last round."""


def means(objective: np.ndarray) -> np.ndarray:
    """Mean over seeds for each step-size, (E,); -inf where all seeds failed."""
    return np.nan_to_num(over_seeds(objective).mean, nan=-np.inf)


def best(objective: np.ndarray) -> int:
    """The index of the step-size with the highest mean."""
    return int(np.argmax(means(objective)))


def first_loss(objective: np.ndarray, amount: float) -> int | None:
    """The first step-size beyond the best at which the mean has lost `amount`; None if there is none."""
    mean, top = means(objective), best(objective)
    beyond = np.flatnonzero(mean[top:] <= mean[top] - amount)
    return top + int(beyond[0]) if len(beyond) else None


def loss(objective: np.ndarray, at: int) -> Estimate:
    """What step-size number `at` loses from the best one, paired."""
    return over_seeds(objective[best(objective)] - objective[at])


def at_worst(etas: np.ndarray, ours: np.ndarray, theirs: np.ndarray, **keys: Any) -> Row:
    """The lowest paired difference. The verdict is on all step-sizes: one that is clearly worse is enough to fail."""
    differences = [over_seeds(each) for each in ours - theirs]
    at = int(np.nanargmin([found.mean for found in differences]))
    ruling = verdict.not_worse(differences)
    return row("objective at the worst eta", differences[at], eta=float(etas[at]), verdict=ruling, **AGAINST_PAVG, **keys)


def at_best(etas: np.ndarray, ours: np.ndarray, theirs: np.ndarray, **keys: Any) -> Row:
    """The difference of both methods at their own best step-sizes, paired."""
    one, other = best(ours), best(theirs)
    found, steps = over_seeds(ours[one] - theirs[other]), {"eta": float(etas[one]), "against_eta": float(etas[other])}
    return row("best objective", found, verdict=verdict.above(found), **steps, **AGAINST_PAVG, **keys)


def own_best(etas: np.ndarray, objective: np.ndarray, **keys: Any) -> Row:
    """J of a method at its best step-size."""
    top = best(objective)
    return row("best objective", over_seeds(objective[top]), eta=float(etas[top]), **keys)


def objectives(
    task: Task, method: Method, etas: Any, seeds: int, root: int, rounds: tuple[int, ...], betas: tuple[float, ...] = ()
) -> Found:
    """J of a method after `rounds`, for the given beta; (T, E, S) each."""
    betas, printed = betas or (1.0 if method.algorithm == "pavg" else BETA,), method.algorithm in ("fedsvrpg-m", "fedhapg-m")
    start = {"u0_batches": initial_batches(task.local_steps, task.rounds, BETA)} if printed else {}
    found = measure(task, method, grid(beta=betas, local_lr=etas), seeds=seeds, root=root, rounds=rounds, **start).objective
    by_beta = np.moveaxis(found.reshape(len(betas), len(etas), seeds, len(rounds)), -1, 1)
    return {(method.name, beta): each for beta, each in zip(betas, by_beta, strict=True)}


def drawn(etas: np.ndarray, found: Found, **keys: Any) -> list[Row]:
    """J after the last round against eta."""
    lines = (line("objective", over_seeds(each[-1]), "eta", etas, method=name, beta=beta, **keys) for (name, beta), each in found.items())
    return [point for one in lines for point in one]


def failures(found: dict[str, np.ndarray]) -> list[str]:
    """A note with the number of failed runs, if there are any."""
    counted = {name: int(np.isnan(values).sum()) for name, values in found.items() if np.isnan(values).any()}
    return [f"Runs that ended in numbers that are not finite, and are left out: {counted}."] if counted else []


def judge(etas: np.ndarray, found: Found, local_steps: int, rounds: tuple[int, int]) -> list[Row]:
    """CALM against PAvg at one K; at K = MANY also early, where PAvg has lost LOSS, and J of every method."""
    rows, plain, many = [], found["PAvg", 1.0], local_steps == MANY
    at = first_loss(plain[-1], LOSS) if many else None
    keys: dict[str, Any] = {"task": CONFLICT.name, "K": local_steps, "round": rounds[-1]}
    there = {} if at is None else {"eta": float(etas[at])}
    ours, named = found[CALM.name, BETA], keys | {"method": CALM.name, "beta": BETA}
    rows += [at_worst(etas, ours[-1], plain[-1], **named), at_best(etas, ours[-1], plain[-1], **named)]
    if many:
        rows.append(at_worst(etas, ours[0], plain[0], **named | {"round": rounds[0]}))
    if at is not None:
        lead, lost = over_seeds(ours[-1][at] - plain[-1][at]), loss(ours[-1], at)
        rows.append(row("objective", lead, verdict=verdict.above(lead, LEAD), **AGAINST_PAVG, **named, **there))
        rows.append(row("loss", lost, verdict=verdict.below(lost, KEPT), **named, **there))
        rows.append(row("loss", loss(plain[-1], at), method="PAvg", beta=1.0, **keys, **there))
    for (name, beta), values in found.items() if many else ():
        rows.append(own_best(etas, values[-1], method=name, beta=beta, **keys))
        rows += [row("objective", over_seeds(values[-1][at]), method=name, beta=beta, **keys, **there)] if at is not None else []
    return rows


def plots(ablation: bool) -> list[Plot]:
    """J against eta: all methods at K = MANY, CALM and PAvg at every K, other beta, and without a baseline."""
    plain, betas, given = {"against": ""}, {"beta": [BETA, 1.0]}, {"quantity": "objective", "x": "eta", "x_log": True}
    compared, bare = ([method.name for method in own] for own in ((CALM, PAVG, FEDSVRPG_M, *RIVALS), (CALM, *BARE)))
    many = plain | {"K": MANY}
    drawn = [
        Plot(title=f"Sampled gradients, K = {MANY}", where=many | betas | {"method": compared}, **given),
        Plot(title="Sampled gradients, any K", where=plain | betas | {"method": compared[:2]}, series=("method", "K"), **given),
        Plot(title=f"Other beta, K = {MANY}", where=many | {"method": CALM.name}, series=("beta",), **given),
        Plot(title=f"Without a baseline, K = {MANY}", where=many | betas | {"method": bare}, **given),
    ]
    return drawn if ablation else drawn[:1]


def run(
    tell: Tell, rounds: int, seeds: int, etas: tuple[float, ...], local_steps: tuple[int, ...], ablation: bool, rest: dict[str, Any],
    other_steps: tuple[int, ...],
) -> Result:  # fmt: skip
    """Runs the experiment.

    Args:
        rounds: R; methods are also evaluated after 3/10 of them.
        seeds, etas: with sampled gradients.
        local_steps: every K, MANY among them.
        ablation: run rivals, other beta and no baseline at K = MANY, and FedSVRPG-M at every K.
        rest: rounds, seeds and betas with exact gradients.
        other_steps: other K of PAvg with exact gradients.
    """
    rows, points, notes, everything = [], [], [], {}
    for k in local_steps:
        found: Found = {}
        task, early = dataclasses.replace(CONFLICT, local_steps=k, rounds=rounds), max(1, 3 * rounds // 10)
        methods = (PAVG, CALM, FEDSVRPG_M) if ablation else (PAVG, CALM)
        methods += (*RIVALS, *BARE) if ablation and k == MANY else ()
        for number, method in enumerate(methods):
            tell(f"{method.name}, K={k}", 0.8 * (local_steps.index(k) + number / len(methods)) / len(local_steps))
            betas = (BETA, 0.05, 0.5) if method is CALM and ablation and k == MANY else ()
            found |= objectives(task, method, etas, seeds, 0, (early, rounds), betas)
        rows += judge(np.array(etas), found, k, (early, rounds))
        points += drawn(np.array(etas), found, task=CONFLICT.name, K=k, round=rounds)
        everything |= {f"{name}, beta {beta:g}, K={k}": each[-1] for (name, beta), each in found.items()}
    for place in (QUADRATICS, DOORS):
        tell(f"exact gradients on {place.task.name}", 0.8 if place is QUADRATICS else 0.9)
        own, more, note = fixed_points.measured(place, other_steps, **rest)
        rows, points, notes = rows + own, points + more, [*notes, note]
    return Result(rows=rows, points=points, plots=plots(ablation) + fixed_points.plots(rest["betas"]), notes=failures(everything) + notes)

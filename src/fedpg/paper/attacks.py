"""Three of ten agents attack, in seven ways: what is left of the return for every robust mean of PAvg and for FedPG-BR.

CartPole. One program holds every attack and every robust mean: which of them a row has is a number among its settings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import policies
from fedpg.algorithms import Algorithm, fedpg_br, pavg
from fedpg.algorithms.wrappers import attack, chain, robust
from fedpg.algorithms.wrappers.attack import NAMES, attacker_count, with_dishonest_agents
from fedpg.algorithms.wrappers.robust import NAMES as MEANS
from fedpg.algorithms.wrappers.robust import mean_of
from fedpg.envs import Federation
from fedpg.paper import verdict
from fedpg.paper.cache import cached
from fedpg.paper.results import Plot, Result, Row, Tell, exactly, line, number, row
from fedpg.paper.task import Task
from fedpg.problem import Problem, policy_gradient
from fedpg.report.statistics import estimate
from fedpg.runs.sweep import curves, grid
from fedpg.simulate import simulator

TASK = Task("CartPole", "cartpole", 10, local_steps=5, horizon=100, discount=0.99, batch=4, baseline="time", importance="truncated",
            eval_episodes=16)  # fmt: skip
SHARE, ROOT = 0.3, 51  # step-sizes were chosen with root 50
LOCAL_LR = {"PAvg": 2e-3, "FedPG-BR": 1e-3}
ATTACKS = ("none", *NAMES)
EVALUATIONS = 4
ENOUGH, FAILED = 0.9, 0.5
"""The share of the clean return that a method must keep, and below which it has visibly failed."""


class Scale(NamedTuple):
    """Sizes of the experiment: seeds, rounds, heterogeneities, attacks (the first is none) and robust means (the first is the mean)."""

    seeds: int
    rounds: int
    heterogeneities: tuple[float, ...]
    attacks: tuple[str, ...]
    means: tuple[str, ...]


SCALES = {
    "smoke": Scale(2, 12, (0.0,), ("none", "sign-flip", "reward-flip", "fedpg-attack"), ("mean", "trimmed-mean")),
    "full": Scale(20, 40, (0.0, 1.0, 2.0), ATTACKS, MEANS),
}
NOTES = [
    "The clean return is that of the plain mean without attackers, for PAvg, and that of its own filter without attackers, for FedPG-BR. "
    "Returns are over all ten agents' true environments.",
    "shuffled-reward does nothing on CartPole, which pays 1 in every step. noise and fedpg-attack average out over rounds.",
    "FedPG-BR measures its thresholds. Step-sizes 0.001 to 0.01 were tried for it, 0.002 alone for PAvg, on other seeds.",
]


def federation(heterogeneity: float) -> tuple[Problem, Federation]:
    """CartPoles of which the first three in ten are attackers; the algorithm says with which attack."""
    made = dataclasses.replace(TASK, heterogeneity=heterogeneity).federation()
    problem = policy_gradient(
        made.environment, policies.make("auto", made.environment), horizon=TASK.horizon, discount=TASK.discount, batch_size=TASK.batch,
        baseline=TASK.baseline, importance=TASK.importance, eval_episodes=TASK.eval_episodes, dishonest=True,
    )  # fmt: skip
    return problem, with_dishonest_agents(made, "reward-flip", attacker_count(SHARE, TASK.agents))


def numbered(which: jax.Array, names: tuple[str, ...]) -> Callable:
    """Robust mean number `which` of `names`."""
    return lambda messages, present: jax.lax.switch(which.astype(int), [mean_of(name, SHARE) for name in names], messages, present)


def measure(size: Scale, heterogeneity: float, tell: Callable[[str], None]) -> dict[str, np.ndarray]:
    """Returns of every method for each attack, (A, S, T); 0 for a seed that failed."""
    problem, agents = federation(heterogeneity)
    count, steps = attacker_count(SHARE, TASK.agents), {"local_steps": TASK.local_steps}

    def averaging(setting: dict[str, jax.Array]) -> Algorithm:
        plain = pavg(problem, local_lr=LOCAL_LR["PAvg"], **steps)
        return chain(plain, robust(numbered(setting["mean"], size.means)), attack(setting["attack"].astype(int), count))

    def filtering(setting: dict[str, jax.Array]) -> Algorithm:
        own = fedpg_br(problem, local_lr=LOCAL_LR["FedPG-BR"], batch=TASK.batch, **steps)
        return chain(own, attack(setting["attack"].astype(int), count))

    found: dict[str, np.ndarray] = {}
    numbers, rounds = [ATTACKS.index(name) for name in size.attacks], evaluated(size.rounds)
    for algorithm_of, names in ((averaging, [f"PAvg, {name}" for name in size.means]), (filtering, ["FedPG-BR"])):
        tell(f"{names[0]}, heterogeneity {heterogeneity:g}")
        settings = {name: jnp.asarray(values, float) for name, values in grid(mean=range(len(names)), attack=numbers).items()}
        sim = simulator(problem, algorithm_of, agents, seeds=size.seeds, settings=settings)
        returns = np.nan_to_num(curves(sim, jax.random.key(ROOT), rounds).returns)
        found |= dict(zip(names, returns.reshape(len(names), len(numbers), size.seeds, -1), strict=True))
    return found


def evaluated(rounds: int) -> list[int]:
    """The rounds after which returns are evaluated."""
    return sorted({round(rounds * i / EVALUATIONS) for i in range(EVALUATIONS + 1)})


def judge(found: dict[str, np.ndarray], size: Scale, heterogeneity: float) -> list[Row]:
    """A row for each method and attack; for each method its worst attack; and two claims."""
    rows, kept, keys = [], {}, {"task": TASK.name, "heterogeneity": heterogeneity}
    for method, returns in found.items():
        last, clean = returns[..., -1], float(found["PAvg, mean" if method.startswith("PAvg") else method][0, :, -1].mean())
        for name, each in zip(size.attacks, last, strict=True):
            left = estimate(each)
            ruling = verdict.at_least(left, number(ENOUGH * clean))
            rows.append(row("return", left, method=method, attack=name, round=size.rounds, verdict=ruling, **keys))
        worst = 1 + int(np.argmin(last[1:].mean(1)))
        share = estimate(last[worst] / clean)
        kept[method] = share.mean >= ENOUGH
        ruling = verdict.at_least(share, ENOUGH)
        rows.append(row("share left", share, method=method, attack=size.attacks[worst], verdict=ruling, **keys))
    robust_means = sum(kept[method] for method in kept if method not in ("FedPG-BR", "PAvg, mean"))
    claim = verdict.Verdict("holds" if kept["FedPG-BR"] and robust_means >= 2 else "fails", "at least", 3.0)
    rows.append(exactly("robust methods", sum(kept.values()), len(kept), verdict=claim, **keys))
    plain = found["PAvg, mean"][..., -1]
    flipped = estimate(plain[size.attacks.index("sign-flip")] / plain[0].mean())
    rows.append(row("share left", flipped, method="PAvg, mean", attack="sign-flip", verdict=verdict.below(flipped, FAILED), **keys))
    return rows


def run(scale: str, tell: Tell) -> Result:
    """Runs the experiment."""
    size, rows, points, plots = SCALES[scale], [], [], []
    for at, heterogeneity in enumerate(size.heterogeneities):
        named, share = ("attacks", size, heterogeneity), at / len(size.heterogeneities)
        found = cached(named, lambda: measure(size, heterogeneity, lambda what: tell(what, share)))  # noqa: B023
        rows += judge(found, size, heterogeneity)
        for name in ("sign-flip", "reward-flip"):
            keys = {"task": TASK.name, "heterogeneity": heterogeneity, "attack": name}
            for method, returns in found.items():
                values = estimate(returns[size.attacks.index(name), :, :-1])  # the last one is a row of the table
                points += line("return", values, "round", evaluated(size.rounds)[:-1], method=method, **keys)
            where = {"attack": name, "heterogeneity": heterogeneity}
            plots.append(Plot(title=f"{name}, heterogeneity {heterogeneity:g}", quantity="return", x="round", where=where))
    settings = dataclasses.asdict(TASK) | {"attackers": SHARE, "local_lr": LOCAL_LR, "root": ROOT} | size._asdict()
    title = "CartPole with three attackers among ten agents: return under every attack"
    return Result(name="attacks", title=title, scale=scale, settings=settings, rows=rows, points=points, plots=plots, notes=NOTES)

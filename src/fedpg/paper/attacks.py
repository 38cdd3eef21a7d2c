"""Three of ten agents attack, in seven ways: what is left of the return for every robust mean of CALM and PAvg, and for FedPG-BR.

CartPole. One program holds every attack and every robust mean: which of them a row has is a number among its settings.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.algorithms import Algorithm, calm, fedpg_br, pavg
from fedpg.algorithms.wrappers import attack, chain, robust
from fedpg.algorithms.wrappers.attack import NAMES, attacker_count, with_dishonest_agents
from fedpg.algorithms.wrappers.robust import NAMES as MEANS
from fedpg.algorithms.wrappers.robust import mean_of
from fedpg.paper import verdict
from fedpg.paper.jobs import cached
from fedpg.paper.method import PAVG
from fedpg.paper.results import Figure, Plot, Result, Row, Tell, changed, exactly, line, number, row, select
from fedpg.paper.task import Task
from fedpg.report.statistics import estimate
from fedpg.runs.sweep import curves, grid
from fedpg.simulate import simulator

TITLE = "CartPole with three attackers among ten agents: return under every attack"
TASK = Task("CartPole", "cartpole", 10, local_steps=5, horizon=100, discount=0.99, batch=4, baseline="time", importance="truncated",
            eval_episodes=16, dishonest=True)  # fmt: skip
SHARE, ROOT = 0.3, 51  # step-sizes were chosen with root 50
LOCAL_LR = {"CALM": 2e-3, "PAvg": 2e-3, "FedPG-BR": 1e-3}
"""CALM takes PAvg's."""
ATTACKS = ("none", *NAMES)
CLEAN = {"PAvg": "PAvg, mean", "CALM": "CALM, mean"}
EVALUATIONS = 4
ENOUGH, FAILED = 0.9, 0.5
"""The share of the clean return that a method must keep, and below which it has visibly failed."""


SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "seeds": 2, "rounds": 12, "heterogeneities": (0.0,), "attacks": ("none", "sign-flip", "reward-flip", "fedpg-attack"),
        "means": ("mean", "trimmed-mean"),
    },
    "full": {"seeds": 8, "rounds": 40, "heterogeneities": (0.0, 1.0, 2.0), "attacks": ATTACKS, "means": MEANS},
}  # fmt: skip
Found = dict[str, np.ndarray]
"""Returns of every method for each attack, the first of which is none, (A, S, T); 0 for a seed that failed."""


def numbered(which: jax.Array, names: tuple[str, ...]) -> Callable:
    """Robust mean number `which` of `names`."""
    return lambda messages, present: jax.lax.switch(which.astype(int), [mean_of(name, SHARE) for name in names], messages, present)


def measure(heterogeneity: float, seeds: int, rounds: int, attacks: tuple[str, ...], means: tuple[str, ...]) -> Found:
    """Runs every robust mean of an algorithm in one program; FedPG-BR has a mean of its own."""
    problem, count, steps = TASK.problem(PAVG), attacker_count(SHARE, TASK.agents), {"local_steps": TASK.local_steps}
    # The first three of ten are marked as attackers; the algorithm says with which attack.
    agents = with_dishonest_agents(dataclasses.replace(TASK, heterogeneity=heterogeneity).federation(), "reward-flip", count)

    def averaging(algorithm: Algorithm, setting: dict[str, jax.Array]) -> Algorithm:
        return chain(algorithm, robust(numbered(setting["mean"], means)), attack(setting["attack"].astype(int), count))

    def filtering(setting: dict[str, jax.Array]) -> Algorithm:
        own = fedpg_br(problem, local_lr=LOCAL_LR["FedPG-BR"], batch=TASK.batch, **steps)
        return chain(own, attack(setting["attack"].astype(int), count))

    found: Found = {}
    numbers = [ATTACKS.index(name) for name in attacks]
    averaged = {"PAvg": pavg(problem, local_lr=LOCAL_LR["PAvg"], **steps),
                "CALM": calm(problem, local_lr=LOCAL_LR["CALM"], agents=TASK.agents, **steps)}  # fmt: skip
    programs = [(functools.partial(averaging, own), [f"{name}, {each}" for each in means]) for name, own in averaged.items()]
    for algorithm_of, names in (*programs, (filtering, ["FedPG-BR"])):
        settings = {name: jnp.asarray(values, float) for name, values in grid(mean=range(len(names)), attack=numbers).items()}
        sim = simulator(problem, algorithm_of, agents, seeds=seeds, settings=settings)
        returns = np.nan_to_num(curves(sim, jax.random.key(ROOT), evaluated(rounds)).returns.mean(-1))
        found |= dict(zip(names, returns.reshape(len(names), len(numbers), seeds, -1), strict=True))
    return found


def evaluated(rounds: int) -> list[int]:
    """The rounds after which returns are evaluated."""
    return sorted({round(rounds * i / EVALUATIONS) for i in range(EVALUATIONS + 1)})


def judge(found: Found, attacks: tuple[str, ...], **keys: Any) -> list[Row]:
    """A row for each method and attack; for each method its worst attack; and two claims.

    The clean return is that of the algorithm's plain mean without attackers, for FedPG-BR of its own filter.
    """
    rows, kept = [], {}
    for method, returns in found.items():
        last, clean = returns[..., -1], float(found[clean_method(method)][0, :, -1].mean())
        for name, left in zip(attacks, map(estimate, last), strict=True):
            rows.append(row("return", left, method=method, attack=name, verdict=verdict.at_least(left, number(ENOUGH * clean)), **keys))
        worst = 1 + int(np.argmin(last[1:].mean(1)))
        share = estimate(last[worst] / clean)
        kept[method] = bool(share.mean >= ENOUGH)
        rows.append(row("share left", share, method=method, attack=attacks[worst], verdict=verdict.at_least(share, ENOUGH), **keys))
    robust_means = sum(kept[method] for method in kept if method != "FedPG-BR" and not method.endswith(", mean"))
    claim = verdict.Verdict("holds" if kept["FedPG-BR"] and robust_means >= 2 else "fails", "at least", 3.0)
    rows.append(exactly("robust methods", sum(kept.values()), len(kept), verdict=claim, **keys))
    plain = found["PAvg, mean"][..., -1]
    flipped = estimate(plain[attacks.index("sign-flip")] / plain[0].mean())
    return [*rows, row("share left", flipped, method="PAvg, mean", attack="sign-flip", verdict=verdict.below(flipped, FAILED), **keys)]


def run(tell: Tell, heterogeneities: tuple[float, ...], rounds: int, attacks: tuple[str, ...], **sizes: Any) -> Result:
    """Runs the experiment; `sizes` are seeds and means."""
    rows, points = [], []
    for at, heterogeneity in enumerate(heterogeneities):
        tell(f"heterogeneity {heterogeneity:g}", at / len(heterogeneities))
        asked, keys = {"rounds": rounds, "attacks": attacks} | sizes, {"task": TASK.name, "heterogeneity": heterogeneity}
        found = cached(("attacks", heterogeneity, asked), lambda: measure(heterogeneity, **asked))  # noqa: B023
        rows += judge(found, attacks, **keys)
        for name in ("sign-flip", "reward-flip"):
            for method, returns in found.items():
                values = estimate(returns[attacks.index(name)])
                points += line("return", values, "round", evaluated(rounds), method=method, attack=name, **keys)
    settings = {"task": dataclasses.asdict(TASK), "attackers": SHARE, "local_lr": LOCAL_LR, "root": ROOT}
    return Result(rows=rows, points=points, settings=settings)


def clean_method(method: str) -> str:
    """The method whose return without attackers is the clean return of `method`."""
    return CLEAN.get(method.split(",")[0], method)


def figures(result: Result) -> list[Figure]:
    """For each heterogeneity the share of the clean return that every method keeps under every attack."""
    found, label = [], "% of the clean return"
    for heterogeneity in dict.fromkeys(each.heterogeneity for each in result.rows):
        own = select(result.rows, quantity="return", heterogeneity=heterogeneity)
        clean = {each.method: each.mean for each in select(own, attack="none")}
        rows = [changed(each, 100.0 / clean[clean_method(each.method)]) for each in own]
        plot = Plot(title=f"Heterogeneity {heterogeneity:g}", quantity="return", names="method", x="attack", heat=True, x_label=label)
        found.append(Figure(plots=[plot], rows=rows, suffix=f"heterogeneity-{heterogeneity:g}", columns=1, height=0.7 + 0.24 * len(clean)))
    return found

"""Three of ten agents attack, in seven ways: what is left of the return, for every way to aggregate PAvg and for FedPG-BR.

CartPole. One program holds every attack and every aggregator: which of them a row has is a number among its settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import policies
from fedpg.algorithms import fedpg_br, pavg
from fedpg.algorithms.aggregation import NAMES as AGGREGATORS
from fedpg.algorithms.aggregation import Aggregator, make
from fedpg.algorithms.base import Algorithm
from fedpg.algorithms.wrappers import attack as attacks
from fedpg.algorithms.wrappers.robust import robust
from fedpg.algorithms.wrappers.tampering import ON_MESSAGES
from fedpg.envs import worlds
from fedpg.gradients import dishonest as suspects
from fedpg.paper.kept import part
from fedpg.paper.outcome import Outcome, Row, Tell, row
from fedpg.paper.sweep import cross, sweep
from fedpg.problem import Problem, policy_gradient
from fedpg.report.figures import Line, Panel
from fedpg.report.stats import estimate

AGENTS, SHARE, LOCAL_STEPS, BATCH = 10, 0.3, 5, 4
ROOT = 51
"""Not the root that was looked at when the step-sizes were chosen (50)."""
LOCAL_LR = {"pavg": 2e-3, "fedpg-br": 1e-3}
PROBLEM = {"horizon": 100, "discount": 0.99, "batch_size": BATCH, "baseline": "time", "weights": "truncated", "eval_episodes": 16}
ATTACKS = ("none", *attacks.NAMES)
EVALUATIONS = 4
ENOUGH, FAILED = 0.9, 0.5
"""The share of the clean return that must be left, and below which a method has visibly failed."""


class Scale(NamedTuple):
    seeds: int
    rounds: int
    heterogeneities: tuple[float, ...]
    attacks: tuple[str, ...]
    aggregators: tuple[str, ...]


SCALES = {
    "smoke": Scale(2, 12, (0.0,), ("none", "sign-flip", "reward-flip", "fedpg-attack"), ("mean", "trimmed-mean")),
    "full": Scale(20, 40, (0.0, 1.0, 2.0), ATTACKS, AGGREGATORS),
}


class Found(NamedTuple):
    """Returns of a method for A attacks, the first of them "none", S seeds and T evaluated rounds.

    Attributes:
        rounds: which, (T,).
        returns: mean over the agents' true environments, (A, S, T); 0 for a seed that failed.
        clean: the return without attackers that it is measured by, ().
    """

    rounds: np.ndarray
    returns: np.ndarray
    clean: float


def federation(heterogeneity: float) -> tuple[Problem, Callable[[jax.Array], Any]]:
    """CartPoles of which the first three in ten are attackers; with which attack, the algorithm says."""
    world = worlds.make_world("cartpole", AGENTS, heterogeneity, {}, "auto")
    problem = policy_gradient(world.environment, policies.make("auto", world.environment), attackable=True, **PROBLEM)
    return problem, attacks.suspected(world.agents_of, 1, attacks.attacker_count(SHARE, AGENTS))


def besieged(algorithm: Algorithm, number: jax.Array) -> Algorithm:
    """`algorithm` under attack `number` of `ATTACKS`."""
    numbers = [[list(kind).index(name) + 1 if name in kind else 0 for name in ATTACKS] for kind in (ON_MESSAGES, suspects.ATTACKS)]
    on_messages, on_trajectories = jnp.array(numbers)[:, number.astype(int)]
    return attacks.on_trajectories(attacks.on_messages(algorithm, on_messages, attacks.attacker_count(SHARE, AGENTS)), on_trajectories)


def numbered(number: jax.Array, names: tuple[str, ...]) -> Aggregator:
    """Aggregator `number` of `names`."""
    return lambda messages, weights: jax.lax.switch(number.astype(int), [make(name, SHARE) for name in names], messages, weights)


def measure(chosen: Scale, heterogeneity: float, tell: Callable[[str], None]) -> dict[str, Found]:
    """Every method, by name, under every attack of the scale."""
    problem, agents_of = federation(heterogeneity)
    steps, numbers = {"local_steps": LOCAL_STEPS}, [ATTACKS.index(name) for name in chosen.attacks]
    rounds = sorted({round(chosen.rounds * i / EVALUATIONS) for i in range(EVALUATIONS + 1)})

    def averaging(setting: dict[str, jax.Array]) -> Algorithm:
        plain = pavg(problem, local_lr=LOCAL_LR["pavg"], **steps)
        return besieged(robust(plain, numbered(setting["aggregation"], chosen.aggregators)), setting["attack"])

    def filtering(setting: dict[str, jax.Array]) -> Algorithm:
        return besieged(fedpg_br(problem, local_lr=LOCAL_LR["fedpg-br"], batch=BATCH, **steps), setting["attack"])

    found, every = {}, range(len(chosen.aggregators))
    for algorithm_of, names in ((averaging, [f"pavg, {name}" for name in chosen.aggregators]), (filtering, ["fedpg-br"])):
        tell(f"{names[0].split(',')[0]}, heterogeneity {heterogeneity:g}")
        grid = cross(aggregation=every if len(names) > 1 else [0], attack=numbers)
        swept = sweep(problem, algorithm_of, agents_of, grid, seeds=chosen.seeds, rounds=rounds, root=ROOT)
        each = np.nan_to_num(swept.total_return).reshape(len(names), len(numbers), *swept.total_return.shape[1:])
        clean = float(each[0, 0, :, -1].mean())  # of the plain mean, or of the filter
        found |= {name: Found(swept.rounds, returns, clean) for name, returns in zip(names, each, strict=True)}
    return found


def run(scale: str, tell: Tell) -> Outcome:
    """Returns under attack beside the clean one."""
    chosen, rows, panels = SCALES[scale], [], []
    for number, heterogeneity in enumerate(chosen.heterogeneities):
        share = number / len(chosen.heterogeneities)
        named, say = ("attacks", chosen, heterogeneity), lambda what, share=share: tell(what, share)
        found = part(named, lambda h=heterogeneity, say=say: measure(chosen, h, say))
        rows += table(found, chosen.attacks, f"h = {heterogeneity:g}")
        panels += [_panel(found, chosen.attacks, name, heterogeneity) for name in ("sign-flip", "reward-flip")]
    settings = {"agents": AGENTS, "attackers": SHARE, "local_steps": LOCAL_STEPS, "local_lr": LOCAL_LR, "root": ROOT} | PROBLEM
    settings |= chosen._asdict()
    title = "CartPole with three attackers among ten agents: return under every attack"
    return Outcome("attacks", title, scale, settings, rows, NOTES, panels)


def table(found: dict[str, Found], names: tuple[str, ...], where: str) -> list[Row]:
    """A row for each method and attack; for each method its worst attack; and the two claims."""
    rows, worst = [], {}
    for method, (_, returns, clean) in found.items():
        last = returns[:, :, -1]
        left = [f"{each.mean() / clean:.0%} of the clean return" for each in last]
        rows += [
            row(f"{where}, {method}: {name}", estimate(each), verdict=said) for name, each, said in zip(names, last, left, strict=True)
        ]
        at = 1 + int(np.argmin(last[1:].mean(1)))
        worst[method] = float(last[at].mean() / clean)
        verdict = "holds: at least 90 %" if worst[method] >= ENOUGH else "does not hold: below 90 %"
        rows.append(row(f"{where}, {method}: share left under its worst attack, {names[at]}", estimate(last[at] / clean), verdict=verdict))
    good = [method for method, left in worst.items() if left >= ENOUGH]
    holds = "fedpg-br" in good and len([method for method in good if method not in ("fedpg-br", "pavg, mean")]) >= 2
    claim = f"{'holds' if holds else 'does not hold'}: FedPG-BR and at least two robust aggregators"
    rows.append(Row(f"{where}: methods that keep 90 % under every attack", len(good), len(good), len(good), len(found), verdict=claim))
    plain = found["pavg, mean"]
    flipped = estimate(plain.returns[names.index("sign-flip"), :, -1] / plain.clean)
    rows.append(
        row(f"{where}: plain mean under sign-flip", flipped, verdict="fails, as it should" if flipped.mean < FAILED else "does not fail")
    )
    return rows


def _panel(found: dict[str, Found], names: tuple[str, ...], attack: str, heterogeneity: float) -> Panel:
    lines = []
    for method, (rounds, returns, _) in found.items():
        each = estimate(returns[names.index(attack)])
        lines.append(Line(method, rounds, each.mean, each.low, each.high))
    return Panel(f"{attack}, heterogeneity {heterogeneity:g}", "round", "return, mean over agents", lines)


NOTES = [
    "The clean return is that of the plain mean without attackers, for PAvg, and that of its own filter without attackers, for FedPG-BR. "
    "Returns are over all ten agents' true environments; attackers act in them like everybody else when they are evaluated.",
    "shuffled-reward does nothing on CartPole, which pays 1 in every step: its row is the clean one. noise and fedpg-attack err in all "
    "directions alike, which averages out over rounds: in trials the plain mean survived both.",
    "FedPG-BR measures its thresholds (sigma is not given). Tuning, on other seeds: step-sizes 0.001, 0.002, 0.003 and 0.01 for FedPG-BR, "
    "where at 0.002 one seed in ten ended in a deterministic policy under noise; 0.002 alone for PAvg; the filter's margin was not varied.",
]

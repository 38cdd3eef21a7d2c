"""Learning curves of CartPole and MuJoCo tasks at their presets, and what is read off them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.stats

from fedpg import envs
from fedpg.errors import UserError
from fedpg.paper.cache import cached
from fedpg.paper.parallel import parallel
from fedpg.paper.results import Row, line
from fedpg.report.statistics import Estimate, estimate
from fedpg.runs.config import Config
from fedpg.runs.setup import resolve
from fedpg.runs.sweep import Curves, sweep

TASKS = {"cartpole": "CartPole", "halfcheetah": "HalfCheetah", "walker2d": "Walker"}
FLOOR = {"cartpole": 0.0, "halfcheetah": -300.0, "walker2d": -50.0}
"""The least that a mean return counts, about twice as bad as an untrained policy; a seed that failed counts this from then on."""
SMALL = {"rounds": 8, "eval_every": 2, "seeds": 3, "batch": 4, "u0": "1", "eval_episodes": 8}
"""CartPole at smoke scale."""
TINY = {"eval_every": 1, "batch": 2, "local_steps": 2, "horizon": 50, "eval_episodes": 2, "normalise_observations": "off"}
"""A robot at smoke scale; observations that are not normalised save seconds of compilation."""
REPORTED = (
    "agents", "heterogeneity", "local_steps", "batch", "local_lr", "horizon", "discount", "baseline", "weights",
    "normalise_advantages", "normalise_observations", "u0", "rounds", "eval_every", "eval_episodes", "seeds",
)  # fmt: skip
NOTES = [
    "Step-sizes are our presets' (docs/presets.md), tuned at beta 0.2 (0.95 for FedHAPG-M on MuJoCo). The paper's eta belongs to its code's "
    "clamped, adaptive steps. As in the paper, agents differ only in where they start. Unlike in the paper, there is a baseline and a batch.",
    "beta 1 of FedSVRPG-M is PAvg, the paper's baseline; of FedHAPG-M it is PAvg in expectation only.",
    "A smaller beta can be a larger step. Where the importance weights have degenerated, FedSVRPG-M is heavy ball with up to 1/beta of the step.",
]
EVALUATIONS = 3
"""Evaluations behind a final return."""
Settings = dict[str, Sequence[float]]
"""Values of beta and local_lr, (P,) each."""


def preset(env: str, algorithm: str, agents: int = 5, **given: Any) -> Config:
    """The resolved preset of a task with what is `given`; agents differ only in where they start."""
    # CartPole's heterogeneity would change these too; constants given as lists stay as they are.
    same = {"length": [0.5] * agents, "gravity": [9.8] * agents} if env == "cartpole" else {}
    backend = "auto" if env == "cartpole" else "batch"
    return resolve(Config(env=env, algorithm=algorithm, agents=agents, env_option=same, backend=backend, **given))


def reported(config: Config) -> dict[str, Any]:
    """What a reader needs to know of a configuration."""
    return {name: getattr(config, name) for name in REPORTED}


def missing(env: str) -> str | None:
    """The line that says which extra `env` needs; None if it is installed."""
    try:
        envs.make(env, 1, 0.0)
    except UserError as error:
        return str(error)
    return None


def learn(config: Config, settings: Settings, steps: float = math.inf) -> list[Curves]:
    """The curves of each setting, without the axis P; stops after `steps` environment steps; cached."""
    found = cached(("learn", config, settings, steps), lambda: sweep(dataclasses.replace(config, global_lr=None), settings, steps=steps))
    if (found.failed >= 0).all() and found.rounds[-1] < config.rounds:  # no seed is left: the curves continue at the floor
        longer = [x if x is None else np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)], mode="edge") for x in found[1:-1]]
        found = Curves(np.append(found.rounds, config.rounds), *longer, found.failed)
    returns = np.maximum(np.nan_to_num(found.returns, nan=-np.inf), FLOOR[config.env])
    found = found._replace(returns=returns)
    return [Curves(found.rounds, *(x if x is None else x[p] for x in found[1:])) for p in range(len(returns))]


def learn_all(
    plans: list[tuple[Config, Settings]], *, processes: int = 1, steps: float = math.inf, tell: Callable[[float], None] = lambda share: None
) -> list[list[Curves]]:
    """The curves of several plans; with several processes, every setting is a job of its own."""
    if processes == 1:
        return parallel(learn, [(config, settings, steps) for config, settings in plans], tell=tell)
    jobs = [
        (number, config, {name: [values[p]] for name, values in settings.items()})
        for number, (config, settings) in enumerate(plans)
        for p in range(len(next(iter(settings.values()))))
    ]
    done = parallel(learn, [(config, settings, steps) for _, config, settings in jobs], processes=processes, tell=tell)
    return [[one for (owner, *_), (one,) in zip(jobs, done, strict=True) if owner == number] for number in range(len(plans))]


def over_run(curves: Curves) -> np.ndarray:
    """The mean return over the run (the area under the curve divided by its rounds), (S,)."""
    return np.trapezoid(curves.returns, curves.rounds, axis=1) / (curves.rounds[-1] - curves.rounds[0])


def final(curves: Curves) -> np.ndarray:
    """The return at the end, mean of the last evaluations, (S,)."""
    return curves.returns[:, -EVALUATIONS:].mean(1)


def rounds_to(curves: Curves, level: float) -> np.ndarray:
    """Rounds until the return is at `level`, interpolated, (S,): at least 1, and the last round for seeds that never get there."""

    def of_seed(returns: np.ndarray) -> float:
        there = np.flatnonzero(returns >= level)
        if not there.size:
            return np.inf
        until = slice(max(there[0] - 1, 0), there[0] + 1)
        return float(np.interp(level, returns[until], curves.rounds[until]))

    return np.clip([of_seed(returns) for returns in curves.returns], 1.0, curves.rounds[-1])


def jackknife(statistic: Callable[[np.ndarray], float], seeds: int) -> Estimate:
    """statistic(which seeds) on all of them, with the 95 % interval of the jackknife; for what is not a mean over seeds.

    >>> x = np.array([1.0, 2.0, 3.0, 4.0])
    >>> print(jackknife(lambda kept: x[kept].mean(), 4), "as", estimate(x))
    2.5 [0.4, 4.6] as 2.5 [0.4, 4.6]
    """
    everyone = np.arange(seeds)
    value, without = statistic(everyone), np.array([statistic(np.delete(everyone, i)) for i in everyone])
    half = scipy.stats.t.ppf(0.975, seeds - 1) * np.sqrt((seeds - 1) / seeds * np.sum((without - without.mean()) ** 2))
    return Estimate(value, value - half, value + half, seeds)


def spread_ratio(ones: list[Curves], others: list[Curves]) -> Estimate:
    """The ratio of standard deviations over seeds, each the mean over curves and evaluations after the start."""

    def log_ratio(kept: np.ndarray) -> float:
        ours, theirs = (np.mean([one.returns[kept, 1:].std(0, ddof=1).mean() for one in curves]) for curves in (ones, others))
        return float(np.log(ours / theirs))

    found = jackknife(log_ratio, len(ones[0].returns))
    return Estimate(*(np.exp(value) for value in found[:3]), found.seeds)


def points(curves: Curves, robot: bool, **keys: Any) -> list[Row]:
    """The points of a learning curve: over rounds, or over thousands of environment steps for robots."""
    axis, values = ("x", curves.env_steps.mean(0) / 1e3) if robot else ("round", curves.rounds)
    return line("return", estimate(curves.returns), axis, values, **keys)


def failures(named: dict[str, Curves]) -> list[str]:
    """A note for every run in which seeds failed."""
    lost = {name: (int((curves.failed >= 0).sum()), len(curves.failed)) for name, curves in named.items()}
    return [f"{name}: {count} of {seeds} seeds ended in numbers that are not finite" for name, (count, seeds) in lost.items() if count]

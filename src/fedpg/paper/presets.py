"""Learning curves of CartPole and MuJoCo tasks at their presets, and what is read off them."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedpg import envs
from fedpg.errors import UserError
from fedpg.paper import verdict
from fedpg.paper.fits import bootstrap
from fedpg.paper.jobs import cached, parallel
from fedpg.paper.results import Plot, Row, line, row
from fedpg.report.statistics import Estimate, estimate
from fedpg.runs.config import Config
from fedpg.runs.setup import resolve
from fedpg.runs.sweep import Curves, sweep

TASKS = {"cartpole": "CartPole", "halfcheetah": "HalfCheetah", "walker2d": "Walker"}
FLOOR = {"cartpole": 0.0, "halfcheetah": -300.0, "walker2d": -50.0}
"""The least that an agent's return counts, about twice as bad as an untrained policy; a seed that failed counts this from then on."""
SMALL = {"rounds": 8, "eval_every": 2, "seeds": 3, "batch": 4, "u0": 1, "eval_episodes": 8}
"""CartPole at smoke scale."""
AUTHORS = {"horizon": 500, "batch": 8}
"""The authors' horizon of HalfCheetah and Walker, and as many steps as the presets have."""
TINY = {"eval_every": 1, "batch": 2, "local_steps": 2, "horizon": 50, "eval_episodes": 2, "normalise_observations": "off"}
"""A robot at smoke scale; observations that are not normalised save seconds of compilation."""
EVALUATIONS = 3
"""Evaluations behind a final return."""
Name = TypeVar("Name")


class Key(NamedTuple):
    """What identifies a learning curve: fields of `Row`."""

    task: str
    method: str
    beta: float
    eta: float | None = None
    N: int | None = None


def preset(env: str, algorithm: str, agents: int = 5, **given: Any) -> Config:
    """The resolved preset of a task with what is `given`; agents differ only in where they start."""
    # CartPole's heterogeneity would change these too; constants given as lists stay as they are.
    same = {"length": [0.5] * agents, "gravity": [9.8] * agents} if env == "cartpole" else {}
    given = (AUTHORS if env in ("halfcheetah", "walker2d") else {}) | given
    return resolve(Config(env=env, algorithm=algorithm, agents=agents, env_option=same, **given))


def missing(env: str) -> str | None:
    """The line that says which extra `env` needs; None if it is installed."""
    try:
        envs.make(env, 1, 0.0)
    except UserError as error:
        return str(error)
    return None


def learn(
    configs: dict[Name, Config], *, processes: int = 1, steps: float = math.inf, tell: Callable[[float], None] = lambda share: None
) -> dict[Name, Curves]:
    """The curves of every configuration, without the axis P.

    Args:
        configs: resolved; the server's step is eta K. Those that differ in beta and local_lr only run in one program.
        processes: with more than one, every configuration is a job of its own.
        steps: environment steps of the federation after which a run stops.
        tell: called with the share that is done.
    """
    groups: dict[str, list[Name]] = {}
    for name, config in configs.items():
        alike = repr(dataclasses.replace(config, beta=None, local_lr=None, global_lr=None))
        groups.setdefault(alike if processes == 1 else repr(name), []).append(name)
    jobs = [([configs[name] for name in names], steps) for names in groups.values()]
    done = parallel(learn_together, jobs, processes=processes, tell=tell)
    found = {name: one for names, curves in zip(groups.values(), done, strict=True) for name, one in zip(names, curves, strict=True)}
    return {name: found[name] for name in configs}


def learn_together(configs: list[Config], steps: float) -> list[Curves]:
    """The curves of configurations that differ in beta and local_lr only, in one program; cached."""
    first, settings = configs[0], {name: [getattr(config, name) for config in configs] for name in ("beta", "local_lr")}
    found = cached(("learn", configs, steps), lambda: sweep(dataclasses.replace(first, global_lr=None), settings, steps=steps))
    returns = np.maximum(np.nan_to_num(found.returns, nan=-np.inf), FLOOR[first.env]).mean(-1)  # (P, S, T)
    found = found._replace(returns=returns, objective=None)
    if (found.failed >= 0).all() and found.rounds[-1] < first.rounds:  # no seed is left: the curves continue at the floor
        longer = [x if x is None else np.pad(x, [(0, 0), (0, 0), (0, 1)], mode="edge") for x in found[1:-1]]
        found = Curves(np.append(found.rounds, first.rounds), *longer, found.failed)
    return [Curves(found.rounds, *(x if x is None else x[p] for x in found[1:])) for p in range(len(configs))]


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


def spread_ratio(ones: list[Curves], others: list[Curves]) -> Estimate:
    """The ratio of standard deviations over seeds, each the mean over curves and evaluations after the start."""
    returns = np.stack([[curves.returns[:, 1:] for curves in own] for own in (ones, others)])  # (2, curves, S, T)

    def ratio(moments: np.ndarray) -> float:
        ours, theirs = np.sqrt(np.maximum(moments[1] - moments[0] ** 2, 0.0)).mean(axis=(1, 2))
        return float(ours / theirs)

    return bootstrap(np.moveaxis(np.stack([returns, returns**2]), 3, 0), ratio)


def points(found: dict[Key, Curves], robot: bool) -> list[Row]:
    """The points of learning curves: over rounds, or over thousands of environment steps for robots."""
    rows = []
    for key, curves in found.items():
        axis, values = ("x", curves.env_steps.mean(0) / 1e3) if robot else ("round", curves.rounds)
        rows += line("return", estimate(curves.returns), axis, values, **key._asdict())
    return rows


def plot(title: str, robot: bool, **given: Any) -> Plot:
    """The axes of learning curves."""
    axis = {"x": "x", "x_label": "environment steps, thousands"} if robot else {"x": "round"}
    return Plot(title=title, quantity="return", **axis, **given)


def difference(quantity: str, values: dict[Key, np.ndarray], one: Key, other: Key, judged: bool, **more: Any) -> Row:
    """The paired difference of two curves, (S,) each, over the seeds that both have; judged by whether it is above 0."""
    count = min(len(values[one]), len(values[other]))
    found = estimate(values[one][:count] - values[other][:count])
    against = other.method if other.method != one.method else f"N = {other.N}" if other.N != one.N else f"beta {other.beta:g}"
    if other.eta != one.eta:
        more["against_eta"] = other.eta
    return row(quantity, found, against=against, comparison="-", verdict=verdict.above(found) if judged else None, **one._asdict(), **more)


def lead(quantity: str, values: dict[Key, np.ndarray], claimed: Key, judged: bool) -> Row:
    """The difference between the curve that is claimed to be best and the best of the others."""
    return difference(quantity, values, claimed, max(values.keys() - {claimed}, key=lambda key: values[key].mean()), judged)


def failures(found: dict[Key, Curves]) -> list[str]:
    """A note for every curve in which seeds failed."""
    lost = {key: int((curves.failed >= 0).sum()) for key, curves in found.items()}
    return [
        f"{key}: {count} of {len(found[key].failed)} seeds ended in numbers that are not finite" for key, count in lost.items() if count
    ]

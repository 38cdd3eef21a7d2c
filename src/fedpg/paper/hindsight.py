"""The fewest samples to an eps over a grid of step-sizes, chosen afterwards: what an algorithm can do, whatever a theorem prescribes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedpg.paper.fits import Fit, fitted, slope
from fedpg.paper.grounds import Known
from fedpg.paper.prescribed import Steps, around, around_plain
from fedpg.paper.rates import Measured

DRAWS = 200
"""Bootstrap samples: each repeats the whole search."""
MARK = ", best of"
"""In the name of a method whose steps were searched; what follows says over how many."""
EDGE = "; the largest lambda of the grid is best throughout"
NEVER = 1e30
"""Stands for the error of a setting in which some seed failed: it is out of the search."""


def searches(known: Known, agents: int, local_steps: int, rounds: int) -> dict[str, Steps]:
    """The grids, by the name of what they give."""
    grids = {"FedSVRPG-M": around(known, agents, local_steps, rounds), "PAvg": around_plain(known, agents, local_steps, rounds)}
    return {f"{name}{MARK} {len(steps.rounds)} steps": steps for name, steps in grids.items()}


class Field(NamedTuple):
    """All settings of one grid, run with N agents.

    Attributes:
        costs: samples of the federation at every evaluated round, (P, T).
        running: mean of |grad J|^2 over the rounds so far, (S, P, T).
        largest: whether a setting has the largest lambda of the grid, (P,).
    """

    costs: np.ndarray
    running: np.ndarray
    largest: np.ndarray


def field(run: Measured, steps: Steps, agents: int, local_steps: int) -> Field:
    """What `measure` found for one of the `searches`."""
    costs = agents * (local_steps * run.rounds[None] + steps.batches[:, None])
    lasting = np.isfinite(run.running).all(axis=(1, 2))[:, None, None]
    return Field(costs, np.moveaxis(np.where(lasting, run.running, NEVER), 1, 0), steps.global_lr == steps.global_lr.max())


def cheapest(costs: np.ndarray, running: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each target the least cost at which some setting's running mean, (P, T), comes down to it, and which; inf if none does."""
    log_cost, log_mean = np.log(np.maximum(costs, 1.0)), np.log(running)
    every = np.arange(len(costs))
    found, which = [], []
    for target in np.log(targets):
        below = log_mean <= target
        after = np.maximum(below.argmax(axis=1), 1)
        x0, x1, y0, y1 = (table[every, at] for table in (log_cost, log_mean) for at in (after - 1, after))
        share = np.divide(target - y0, y1 - y0, out=np.ones_like(y0), where=y0 != y1)
        needed = np.where(below.any(axis=1), x0 + share * (x1 - x0), np.inf)
        which.append(int(needed.argmin()))
        found.append(needed.min())
    return np.exp(found), np.array(which)


class Searched(NamedTuple):
    """Attributes:
    samples: the fewest, by target or by N.
    slope: of their logarithm.
    edge: whether the largest lambda of the grid was best throughout: a larger one might be better still.
    """

    samples: Fit
    slope: Fit
    edge: bool


def over_eps(one: Field, targets: np.ndarray) -> Searched:
    """The fewest samples to every eps; slope against 1/eps."""
    samples = fitted(one.running, lambda means: cheapest(one.costs, means, targets)[0], DRAWS)
    line = fitted(one.running, lambda means: slope(1.0 / targets, cheapest(one.costs, means, targets)[0]), DRAWS)
    _, which = cheapest(one.costs, one.running.mean(axis=0), targets)
    return Searched(samples, line, bool(one.largest[which].all()))


def over_agents(agents: np.ndarray, fields: list[Field], eps: float) -> Searched:
    """The fewest trajectories per agent to one eps for every N; slope against N."""
    longest = max(one.costs.shape[-1] for one in fields)

    def padded(table: np.ndarray) -> np.ndarray:
        """As long as the longest; the last value again changes no search."""
        return np.pad(table, [(0, 0)] * (table.ndim - 1) + [(0, longest - table.shape[-1])], mode="edge")

    costs, running = [padded(one.costs) for one in fields], np.stack([padded(one.running) for one in fields], axis=1)

    def needed(means: np.ndarray) -> np.ndarray:
        return np.array([cheapest(cost, mean, np.array([eps]))[0][0] for cost, mean in zip(costs, means, strict=True)]) / agents

    best = [cheapest(cost, mean, np.array([eps]))[1][0] for cost, mean in zip(costs, running.mean(axis=0), strict=True)]
    edge = all(one.largest[i] for one, i in zip(fields, best, strict=True))
    return Searched(fitted(running, needed, DRAWS), fitted(running, lambda means: slope(agents, needed(means)), DRAWS), edge)

"""Trajectories per agent to a given eps, for N agents, and the slope of the line through them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedpg.algorithms import fedsvrpg_m
from fedpg.paper.fits import Fit, fitted, reached, slope
from fedpg.paper.grounds import Ground
from fedpg.paper.hindsight import EDGE, Field, field, over_agents, searches
from fedpg.paper.rates import measure


class Reach(NamedTuple):
    """One variant on one ground, reaching one eps.

    Attributes:
        eps: the target.
        agents: every N, (n,).
        trajectories: per agent, (n,).
        slope: of the line through them.
        capped: the N at which the smoothness of J decides lambda, at the R nearest to what was needed.
        remark: what must be said beside it.
    """

    eps: float
    agents: np.ndarray
    trajectories: Fit
    slope: Fit
    capped: list[int]
    remark: str = ""


def reach(agents: np.ndarray, costs: np.ndarray, averages: np.ndarray, capped: np.ndarray, eps: float) -> Reach:
    """Trajectories per agent until the average is eps, from runs of G lengths; axes (n, G), averages (seeds, n, G)."""

    def needed(means: np.ndarray) -> np.ndarray:
        return np.array([reached(cost, mean, eps) for cost, mean in zip(costs, means, strict=True)])

    found = fitted(averages, needed)
    nearest = np.abs(np.log(costs) - np.log(found.value)[:, None]).argmin(axis=1)
    beyond = [int(n) for n, row, g in zip(agents, capped, nearest, strict=True) if row[g]]
    return Reach(eps, agents, found, fitted(averages, lambda means: slope(agents, needed(means))), beyond)


def with_hindsight(counts: tuple[int, ...], local_steps: int, seeds: int, ground: Ground, samples: int, eps: float) -> dict[str, Reach]:
    """What the best of a grid of step-sizes needs to reach eps, for a few N; no run has more than `samples`."""
    fields: dict[str, list[Field]] = {}
    for agents in counts:
        size = {"agents": agents, "local_steps": local_steps}
        parts = searches(ground.known, **size, rounds=samples // (agents * local_steps))
        for name, run in measure(ground, fedsvrpg_m, parts, **size, seeds=seeds).items():
            fields.setdefault(name, []).append(field(run, parts[name], **size))
    best = {name: over_agents(np.array(counts), own, eps) for name, own in fields.items()}
    return {name: Reach(eps, np.array(counts), one.samples, one.slope, [], EDGE if one.edge else "") for name, one in best.items()}

"""Trajectories per agent to an eps: made-up speed-ups are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedpg.paper import reach as module
from fedpg.paper.grounds import bowls
from fedpg.paper.rates import Measured
from fedpg.paper.reach import reach

AGENTS = np.array([1, 2, 4, 8])
COSTS = np.array([[800.0, 1600.0, 3200.0]]) / AGENTS[:, None]
OPEN = np.zeros((4, 3), bool)


def averages(power: float) -> np.ndarray:
    """eps = (per agent * N^power)^(-2/3), with noise that each seed has in common, (5, 4, 3)."""
    seeds = np.linspace(0.9, 1.1, 5)[:, None, None]
    return seeds * (COSTS * AGENTS[:, None] ** power) ** (-2 / 3)


@pytest.mark.parametrize("power", [1.0, 0.5, 0.0])
def test_reach_finds_the_speed_up(power: float) -> None:
    found = reach(AGENTS, COSTS, averages(power), OPEN, 1600.0 ** (-2 / 3))
    np.testing.assert_allclose(found.trajectories.value, 1600.0 / AGENTS**power, rtol=1e-6)
    assert float(found.slope.value) == pytest.approx(-power, abs=1e-6)
    assert found.capped == []


def test_reach_says_which_agents_are_outside_the_regime() -> None:
    """N = 8 is capped at its shortest run only, N = 4 at its longest only; 200 trajectories per agent is the shortest run of 4."""
    capped = OPEN.copy()
    capped[3, 0] = capped[2, 2] = True
    assert reach(AGENTS, COSTS, averages(1.0), capped, 800.0 ** (-2 / 3)).capped == [8]


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_with_hindsight_finds_the_speed_up_of_the_best(monkeypatch: pytest.MonkeyPatch, power: float) -> None:
    """Only the largest lambda of each grid gets anywhere; it needs 1 / (eps N^power) rounds, and B more batches."""

    def made_up(ground: Any, make: Any, parts: dict, *, agents: int, local_steps: int, seeds: int) -> dict[str, Measured]:
        rounds, found = np.array([0, *np.unique(np.geomspace(1, 10**5, 200).astype(int))]), {}
        for name, steps in parts.items():
            running = np.where(steps.global_lr[:, None] == steps.global_lr.max(), 1.0 / (agents**power * np.maximum(rounds, 0.1)), 9.0)
            found[name] = Measured(rounds, np.repeat(running[:, None], seeds, axis=1), *[np.zeros(1)] * 4)
        return found

    monkeypatch.setattr(module, "measure", made_up)
    found = module.with_hindsight((1, 4), 2, 3, bowls(), 10**6, 1e-4)
    (plain,) = (one for name, one in found.items() if name.startswith("PAvg"))
    np.testing.assert_allclose(plain.trajectories.value, [2e4, 2e4 / 4**power], rtol=1e-3)
    assert float(plain.slope.value) == pytest.approx(-power, abs=1e-3)
    assert all("largest lambda" in one.remark for one in found.values())

"""The best of a grid: for every eps the setting that gets there first, on curves with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.paper import hindsight
from fedpg.paper.grounds import Known
from fedpg.paper.hindsight import NEVER, cheapest, field, over_agents, over_eps
from fedpg.paper.prescribed import Steps
from fedpg.paper.rates import Measured

ROUNDS = np.array([0, *2 ** np.arange(15)])
TARGETS = np.array([0.2, 0.1, 0.05])
GRID = np.geomspace(0.005, 0.5, 40)


def curves(steps: np.ndarray, agents: int = 1) -> np.ndarray:
    """1/(step r) + step/N: the eps it ends at rises with the step, the time to get near it falls. (P, T)."""
    return 1.0 / (steps[:, None] * np.maximum(ROUNDS, 0.5)) + steps[:, None] / agents


def measured(steps: np.ndarray, agents: int = 1, batches: float = 0.0) -> tuple[Measured, Steps]:
    """Three seeds that differ by a tenth."""
    running = np.repeat(curves(steps, agents)[:, None], 3, axis=1) * np.array([0.9, 1.0, 1.1])[:, None]
    every = np.full(len(steps), batches)
    return Measured(ROUNDS, running, *[np.zeros(1)] * 4), Steps(every, every, steps, every, every, every > NEVER)


def test_cheapest_takes_another_setting_for_every_target() -> None:
    """Best step eps/2: 4/eps^2 rounds; a grid comes near to it from above."""
    found, which = cheapest(np.tile(2.0 * ROUNDS, (40, 1)), curves(GRID), TARGETS)
    best = 2.0 * 4.0 / TARGETS**2
    assert (found > 0.95 * best).all()
    np.testing.assert_allclose(found, best, rtol=0.1)
    np.testing.assert_allclose(GRID[which], TARGETS / 2, rtol=0.15)


def test_what_no_setting_reaches_costs_infinitely_much() -> None:
    found, _ = cheapest(1.0 * ROUNDS[None], curves(np.array([0.08])), TARGETS)
    assert np.isinf(found).tolist() == [False, False, True]


def test_over_eps_counts_batches_and_leaves_failures_out() -> None:
    run, steps = measured(GRID)
    run.running[7, 1, 5:] = np.nan
    few = over_eps(field(run, steps, agents=4, local_steps=2), TARGETS)
    many = over_eps(field(run, steps._replace(batches=np.full(40, 1000.0)), agents=4, local_steps=2), TARGETS)
    np.testing.assert_allclose(few.samples.value, 8 * 4.0 / TARGETS**2, rtol=0.1)
    np.testing.assert_allclose(many.samples.value - few.samples.value, 4000.0, rtol=0.2)
    assert float(few.slope.value) == pytest.approx(2.0, abs=0.05)
    assert few.slope.low <= few.slope.value <= few.slope.high
    assert few.slope.seeds == 3
    assert not few.edge


def test_edge_is_told() -> None:
    """With steps that are all too small the largest is best for every eps, and needs eps^-1."""
    found = over_eps(field(*measured(np.geomspace(1e-3, 4e-3, 5)), agents=1, local_steps=1), TARGETS)
    assert found.edge
    assert float(found.slope.value) == pytest.approx(1.0, abs=0.06)


def test_over_agents_finds_the_speed_up_of_runs_of_unequal_lengths() -> None:
    """Noise step/N: the best step is N times larger, rounds N times fewer."""
    agents = np.array([1, 4])
    fields = [field(*measured(GRID * n, n), agents=int(n), local_steps=1) for n in agents]
    short = fields[1]._replace(costs=fields[1].costs[:, :-2], running=fields[1].running[..., :-2])
    found = over_agents(agents, [fields[0], short], 0.05)
    np.testing.assert_allclose(found.samples.value, 4.0 / 0.05**2 / agents, rtol=0.1)
    assert float(found.slope.value) == pytest.approx(-1.0, abs=0.05)


def test_searches_name_their_size() -> None:
    found = hindsight.searches(Known(1.0, 3.0, 10.0, 4.0, 8.0), 4, 2, 1000)
    assert [int(name.split(hindsight.MARK)[1].split()[0]) for name in found] == [len(steps.beta) for steps in found.values()]
    assert [name.split(",")[0] for name in found] == ["FedSVRPG-M", "PAvg"]

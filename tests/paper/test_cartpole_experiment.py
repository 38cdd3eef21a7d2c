"""When a goal counts as reached, and how ratios of medians are judged."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.paper import cartpole


def test_a_goal_is_reached_when_three_evaluations_in_a_row_average_it():
    returns = np.array([[[90.0, 99.0, 90.0, 97.0, 99.0], [50.0, 50.0, 60.0, 94.0, 96.0]]])
    spent = np.array([[[10, 20, 30, 40, 50], [10, 20, 30, 40, 50]]])
    np.testing.assert_array_equal(cartpole.needed(returns, spent), [[20.0, np.inf]])


def test_the_ratio_and_its_interval():
    ours, theirs = np.full(20, 400.0), np.array([800.0] * 19 + [np.inf])
    assert cartpole.ratio_of_medians(ours, theirs) == (0.5, 0.5, 0.5)
    ratio, low, high = cartpole.ratio_of_medians(np.linspace(100, 300, 21), np.linspace(300, 500, 21))
    assert ratio == pytest.approx(0.5)
    assert low < ratio < high
    assert cartpole.ratio_of_medians(np.full(5, np.inf), np.full(5, 10.0))[0] == np.inf


@pytest.mark.slow  # `reproduce NAME --scale smoke` runs in CI
def test_a_small_run_names_every_algorithm_and_judges_the_variant(monkeypatch):
    monkeypatch.setitem(cartpole.SCALES, "smoke", cartpole.Scale(3, (4,), (1e-3, 3e-3), 120, ("pavg", "fedsvrpg-s")))
    monkeypatch.setitem(cartpole.PROBLEM, "horizon", 20)
    found = cartpole.run("smoke", lambda what, share: None)
    assert [row.what.split(",")[1].split(":")[0].strip() for row in found.rows] == ["pavg", "fedsvrpg-s", "fedsvrpg-s / pavg"]
    assert all(not np.isfinite(row.ours) for row in found.rows[:2])  # nobody gets 95 of 20
    assert found.rows[2].verdict.startswith("does not hold")
    assert len(found.panels[0].lines[0].x) == 120 // (5 * 4)

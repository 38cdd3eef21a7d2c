"""When a goal counts as reached, and how ratios of medians are judged."""

import numpy as np
import pytest

from fedpg.paper import cartpole
from fedpg.paper.results import select
from fedpg.runs.sweep import Curves


def test_a_goal_is_reached_when_three_evaluations_in_a_row_average_it():
    returns = np.array([[[90.0, 99.0, 90.0, 97.0, 99.0], [50.0, 50.0, 60.0, 94.0, 96.0]]])
    spent = np.array([[[10, 20, 30, 40, 50], [10, 20, 30, 40, 50]]])
    np.testing.assert_array_equal(cartpole.needed(returns, spent), [[20.0, np.inf]])


def test_the_ratio_and_its_interval():
    ours, theirs = np.full(20, 400.0), np.array([800.0] * 19 + [np.inf])
    assert cartpole.ratio_of_medians(ours, theirs)[:3] == (0.5, 0.5, 0.5)
    found = cartpole.ratio_of_medians(np.linspace(100, 300, 21), np.linspace(300, 500, 21))
    assert found.mean == pytest.approx(0.5)
    assert found.low < found.mean < found.high
    assert cartpole.ratio_of_medians(np.full(5, np.inf), np.full(5, 10.0))[0] == np.inf
    assert cartpole.ratio_of_medians(np.full(5, np.inf), np.full(5, np.inf))[0] == np.inf  # no gain


def made(rounds_to_goal, seeds=6):
    """For each of two step-sizes the evaluation from which on the return is 99; every evaluation costs 100 trajectories."""
    returns = np.where(np.arange(10) >= np.array(rounds_to_goal)[:, None], 99.0, 20.0)[:, None] + np.zeros((1, seeds, 1))
    used = 100.0 * (1 + np.arange(10)) + np.zeros_like(returns)
    return Curves(np.arange(10), returns, returns, None, used, used, used, np.full(returns.shape[:2], -1))


def test_each_method_has_its_best_setting_on_the_tuning_seeds(monkeypatch):
    """Tuning seeds (3) get to the goal as `made` says, best at the second eta for CALM; the reported ones (6) one evaluation later."""
    first = {"PAvg": [4, 9] * 4, "CALM": [9, 2] * 2, "pooled": [99, 99]}

    def measure(task, method, settings, *, seeds, root, rounds):
        if root == cartpole.ROOTS[0]:
            return made(first[method.name], seeds)
        assert len(settings["local_lr"]) == 1
        return made([min(first[method.name]) + 1], seeds)

    monkeypatch.setattr(cartpole, "measure", measure)
    methods = (cartpole.PAVG, cartpole.CALM, cartpole.METHODS["pooled"])
    result = cartpole.run(lambda what, share: None, 3, 6, (32,), (0.1, 0.2), 1600, methods)
    spent = {row.method: (row.mean, row.eta, row.ratio) for row in select(result.rows, quantity="trajectories to the goal", against="")}
    assert spent == {"PAvg": (600.0, 0.1, 1.0), "CALM": (400.0, 0.2, 1.0), "pooled": (None, 0.1, 1.0)}
    assert {row.method: row.mean for row in select(result.rows, quantity="seeds at the goal")} == {"PAvg": 1.0, "CALM": 1.0, "pooled": 0.0}
    ratio, rival = select(result.rows, against="PAvg")
    assert (ratio.mean, ratio.verdict.outcome, ratio.verdict.bound) == (pytest.approx(2 / 3, abs=1e-5), "fails", 0.6)
    assert rival.flags == ("best rival",)
    assert [point.x for point in select(result.points, method="PAvg")] == [100.0 * (1 + i) for i in range(10)]

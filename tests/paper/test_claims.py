"""What is read off learning curves, on curves with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.paper import claims
from helpers.curves import made_up


def test_height_is_the_area_under_the_curve_per_round():
    assert claims.height(made_up(30.0, scatter=0.0)).tolist() == pytest.approx([20.0] * 4)
    uneven = made_up(30.0)._replace(rounds=np.array([0, 1, 2, 3, 4, 10]), total_return=np.array([[0.0, 0, 0, 0, 10, 10]]))
    assert claims.height(uneven).tolist() == pytest.approx([(5 + 60) / 10])


def test_final_is_the_mean_of_the_last_evaluations():
    run = made_up(0.0)._replace(total_return=np.array([[9.0, 9, 9, 1, 2, 6]]))
    assert claims.final(run).tolist() == [3.0]


def test_reached_interpolates_between_evaluations():
    returns = np.array([[0.0, 10, 20, 80, 85, 99], [95, 1, 1, 1, 1, 1], [0, 1, 2, 3, 4, 5], [0, 0, 100, 0, 0, 100]])
    found = claims.reached(made_up(0.0)._replace(total_return=returns), 50.0)
    assert found.tolist() == [5.0, 0.0, np.inf, 3.0]


def test_differences_are_paired():
    seeds = np.array([10.0, 20.0, 30.0, 40.0])  # they differ far more between seeds than the claim is about
    better, mixed = seeds + np.array([1.0, 1.1, 0.9, 1.0]), seeds + np.array([1.0, -1.1, 0.9, -1.0])
    found = claims.difference("what", better, seeds, True)
    assert found.ours == pytest.approx(1.0)
    assert (found.verdict, found.n) == ("holds", 4)
    assert claims.difference("what", seeds, better, True).verdict == "the opposite holds"
    assert claims.difference("what", seeds, mixed, True).verdict == "no difference seen"
    assert claims.difference("what", better, seeds, False).verdict == claims.TOO_SHORT


def test_the_best_beta_is_held_against_the_best_of_the_others():
    noise = np.array([0.1, -0.1, 0.0, 0.05])
    values = {0.2: 50 + noise, 0.5: 60 + noise**2, 1.0: 55 + noise}
    assert claims.best("CartPole", 0.5, values, True).verdict == "holds"
    beaten = claims.best("CartPole", 0.2, values, True)
    assert beaten.verdict == "does not hold: beta 0.5 is better"
    assert beaten.ours == pytest.approx(-10, abs=0.1)
    values[0.2] = 60 + noise[::-1]
    assert claims.best("CartPole", 0.2, values, True).verdict == "not told apart from beta 0.5"


def test_the_jackknife_covers_a_ratio_of_spreads():
    random = np.random.default_rng(0)

    def runs(scale):
        return [made_up(50.0)._replace(total_return=scale * random.normal(size=(40, 6))) for _ in range(3)]

    apart = claims.spread_ratio(runs(2.0), runs(1.0))
    assert 1.6 < apart.low < 2.0 < apart.high < 2.5
    same = claims.spread_ratio(runs(1.0), runs(1.0))
    assert same.low < 1.0 < same.high
    assert same.seeds == 40


def test_lines_have_an_interval_if_there_is_more_than_one_seed():
    run = made_up(30.0)
    drawn = claims.line("beta 1", run, run.rounds, "--")
    assert (drawn.label, drawn.style) == ("beta 1", "--")
    assert drawn.y[-1] == pytest.approx(30.0)
    assert drawn.low[0] < 10.0 < drawn.high[0]
    assert claims.line("beta 1", made_up(30.0, seeds=1), run.rounds).low is None


def test_notes_name_failed_seeds_and_the_weights():
    assert claims.failures({"fine": made_up(9.0)}) == []
    assert claims.failures({"fine": made_up(9.0), "lost": made_up(9.0, failed=2)}) == [
        "lost: 2 of 4 seeds ended in numbers that are not finite"
    ]
    assert "0.3 of 1" in claims.weight_note("beta 0.2", made_up(9.0))

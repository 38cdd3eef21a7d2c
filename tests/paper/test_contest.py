"""Comparisons on made-up J whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.paper import contest
from fedpg.paper.contest import AT_LEAST, WITHIN, Contest
from fedpg.report.stats import Estimate

ETAS = np.array([0.01, 0.1, 1.0])
NOISE = np.array([-0.3, -0.1, 0.1, 0.3])


def made(ours: list[float], theirs: list[float], noise: np.ndarray = NOISE) -> Contest:
    """The given means; all seeds of both share the noise, so that differences have none."""
    return Contest(ETAS, np.array(ours)[:, None] + noise, np.array(theirs)[:, None] + noise)


def test_differences_are_paired():
    """Noise that both share does not blur their difference."""
    found = contest.worst(made([1.0, 5.0, 4.9], [0.9, 4.8, 4.5]))
    assert (found.at, found.verdict) == (0, AT_LEAST)
    np.testing.assert_allclose(found.difference[:3], 0.1, atol=1e-12)


def test_worse_within_its_interval_and_clearly_worse():
    one = made([1.0, 5.0, 4.0], [0.9, 4.8, 4.5])
    blurred = one._replace(ours=one.ours + np.outer([0.0, 0.0, 5.0], NOISE))
    assert contest.worst(blurred).verdict == WITHIN
    assert contest.worst(one).verdict == "does not hold (eta=1)"
    two = blurred._replace(ours=blurred.ours - np.array([[0.2], [0.0], [0.0]]))  # a small clear loss beside a large unclear one
    assert contest.worst(two)[::2] == (2, "does not hold (eta=0.01)")


def test_best_over_step_sizes_may_be_at_different_ones():
    assert contest.best(np.array([[1.0, 1.0], [3.0, 3.0], [2.0, 4.5]])) == 2
    np.testing.assert_allclose(contest.best_difference(made([1.0, 5.0, 6.0], [0.9, 4.8, 4.5])).mean, 6.0 - 4.8)


@pytest.mark.parametrize(("amount", "at"), [(0.2, 2), (0.29, 2), (0.31, None)])
def test_where_something_is_lost(amount, at):
    """Only beyond the best: what is low because steps are short is not lost."""
    theirs = made([0.0] * 3, [0.9, 4.8, 4.5]).theirs
    assert contest.first_loss(theirs, amount) == at
    if at is not None:
        np.testing.assert_allclose(contest.lost(theirs, at).mean, 0.3)


@pytest.mark.parametrize(("low", "high", "above", "below"), [
    (1.0, 1.2, "holds", "does not hold"), (0.9, 1.1, "not resolved", "not resolved"), (0.7, 0.8, "does not hold", "holds"),
])  # fmt: skip
def test_verdicts_on_a_bound(low, high, above, below):
    found = Estimate(np.array((low + high) / 2), np.array(low), np.array(high), 8)
    assert (contest.above(found, 1.0), contest.below(found, 1.0)) == (above, below)


def test_no_difference_is_not_a_gain():
    for low, high, verdict in (
        (0.1, 0.2, "holds"),
        (-0.1, 0.2, "not resolved"),
        (0.0, 0.0, "does not hold"),
        (-0.2, -0.1, "does not hold"),
    ):
        assert contest.higher(Estimate(np.array(0.0), np.array(low), np.array(high), 8)) == verdict


def test_failed_seeds_are_left_out_and_counted():
    objective = np.array([[1.0, 3.0, np.nan], [np.nan, np.nan, np.nan], [1.0, 1.0, 1.0]])
    assert contest.over_seeds(objective[0])[::3] == (2.0, 2)
    assert contest.means(objective).tolist() == [2.0, -np.inf, 1.0]
    assert contest.failures({"a": objective, "b": objective[2]}) == [
        "Runs that ended in numbers that are not finite, and are left out: {'a': 4}."
    ]
    assert contest.failures({"b": objective[2]}) == []


def test_line():
    drawn = contest.line("a", ETAS, made([1.0, 5.0, 4.0], [0.0] * 3).ours)
    np.testing.assert_allclose(drawn.y, [1.0, 5.0, 4.0])
    np.testing.assert_allclose(drawn.high - drawn.y, 3.1824 * NOISE.std(ddof=1) / 2, rtol=1e-3)  # t of 3 degrees of freedom, 4 seeds

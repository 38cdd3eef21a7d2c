"""Intervals, interquartile mean, probability of improvement and the stratified bootstrap, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from fedpg.report.statistics import estimate, interquartile_mean, probability_of_improvement, stratified


def test_interval_by_hand():
    """1..5: mean 3, sd sqrt(2.5), t(0.975, 4) = 2.776445."""
    found = estimate(np.arange(1.0, 6.0))
    half = 2.776445 * np.sqrt(2.5) / np.sqrt(5)
    assert (found.mean, found.low, found.high, found.seeds) == pytest.approx((3.0, 3.0 - half, 3.0 + half, 5), rel=1e-6)


def test_interval_covers_the_mean_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(size=(10, 4000))
    found = estimate(draws)
    assert np.mean((found.low <= 0) & (found.high >= 0)) == pytest.approx(0.95, abs=0.015)


def test_one_seed_has_no_interval():
    found = estimate(np.array([[1.0, 2.0]]))
    assert found.low.tolist() == found.high.tolist() == [1.0, 2.0]


def test_interquartile_mean_by_hand():
    """Of 10 values 2 are cut at each end."""
    values = np.array([9.0, -100.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1000.0, 0.0])
    assert interquartile_mean(values) == pytest.approx((1 + 2 + 3 + 4 + 5 + 6) / 6)
    assert interquartile_mean(values.reshape(2, 5)) == interquartile_mean(values)
    assert interquartile_mean(np.array([1.0, 2.0, 6.0])) == 3.0  # too few to cut any


@pytest.mark.parametrize("count", [4, 7, 12, 23])
def test_interquartile_mean_is_the_trimmed_mean(count):
    values = np.random.default_rng(count).normal(size=count)
    assert interquartile_mean(values) == pytest.approx(scipy.stats.trim_mean(values, 0.25))


def test_probability_of_improvement_is_the_scaled_rank_sum():
    generator = np.random.default_rng(0)
    ours, theirs = generator.integers(0, 6, 9), generator.integers(0, 6, 7)  # with ties
    statistic = scipy.stats.mannwhitneyu(ours, theirs).statistic
    assert probability_of_improvement(ours, theirs) == pytest.approx(statistic / (9 * 7))
    assert probability_of_improvement(theirs, ours) == pytest.approx(1 - statistic / (9 * 7))


def test_stratified_interval_of_a_mean_has_the_right_width():
    """Two tasks far apart: the interval knows only the spread within each, sd/sqrt(2 n) of the mean of both."""
    generator = np.random.default_rng(1)
    tasks = [generator.normal(0.0, 1.0, 200), generator.normal(1000.0, 1.0, 200)]
    found = stratified(lambda each: float(np.mean(np.concatenate(each))), tasks)
    assert found.mean == pytest.approx(np.mean(tasks))
    assert found.seeds == 400
    assert (found.high - found.low) / 2 == pytest.approx(1.96 / np.sqrt(400), rel=0.15)


def test_stratified_draws_what_shares_a_seed_together():
    pairs = np.stack([np.arange(20.0), np.arange(20.0) + 1.0], axis=1)
    found = stratified(lambda each: float(np.mean(each[0][:, 1] - each[0][:, 0])), [pairs])
    assert (found.mean, found.low, found.high) == (1.0, 1.0, 1.0)

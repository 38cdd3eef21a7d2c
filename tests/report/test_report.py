"""Statistics against hand-computed numbers; a picture that is really drawn."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fedpg.errors import UserError
from fedpg.report.figures import Curve, curve, learning_curves
from fedpg.report.stats import estimate


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


def rows(failed=None):
    values = [[10.0, 20.0, 30.0], [20.0, 30.0, 40.0]]
    per_seed = [[None if i == failed else v for i, v in enumerate(row)] for row in values]
    return [{"round": 5 * i, "return_per_seed": row, "return_worst_per_seed": row} for i, row in enumerate(per_seed)]


def test_curves_leave_out_failed_seeds():
    assert curve("x", rows()).mean.tolist() == [[10.0, 20.0], [20.0, 30.0], [30.0, 40.0]]
    assert curve("x", rows(failed=1)).mean.tolist() == [[10.0, 20.0], [30.0, 40.0]]
    assert curve("x", rows()).x.tolist() == [0, 5]


def test_a_picture_is_drawn(tmp_path):
    from matplotlib import image

    lines = [Curve(name, np.arange(5), np.random.default_rng(i).uniform(size=(3, 5)), np.zeros((3, 5))) for i, name in enumerate("ab")]
    path = learning_curves(lines, tmp_path / "deep" / "curves.png", title="t")
    pixels = image.imread(path)
    assert pixels.shape[:2] == (528, 880)
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20  # two colours, bands and text, not a blank page


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"fedpg\[plot\]"):
        learning_curves([], tmp_path / "x.png", title="t")

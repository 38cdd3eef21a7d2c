"""Curves from a run's lines, and pictures with the lines that they should have."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fedpg.errors import UserError
from fedpg.report import figures
from fedpg.report.figures import Curve, Line, Panel, curve, learning_curves, panels
from fedpg.report.statistics import estimate


def rows(failed=None):
    values = [[10.0, 20.0, 30.0], [20.0, 30.0, 40.0]]
    per_seed = [[None if i == failed else v for i, v in enumerate(row)] for row in values]
    return [{"round": 5 * i, "return_per_seed": row, "return_worst_per_seed": row} for i, row in enumerate(per_seed)]


def test_curves_leave_out_failed_seeds():
    assert curve("x", rows()).mean.tolist() == [[10.0, 20.0], [20.0, 30.0], [30.0, 40.0]]
    assert curve("x", rows(failed=1)).mean.tolist() == [[10.0, 20.0], [30.0, 40.0]]
    assert curve("x", rows()).x.tolist() == [0, 5]


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved."""
    found, save = [], figures._saved
    monkeypatch.setattr(figures, "_saved", lambda figure, path: (found.append(figure), save(figure, path))[1])
    return found


def test_learning_curves_show_mean_interval_and_worst_agent(tmp_path, drawn):
    values = np.random.default_rng(0).uniform(size=(2, 3, 5))
    path = learning_curves([Curve("a", np.arange(5), *values)], tmp_path / "deep" / "curves.png", title="t")
    assert path.exists()
    (axes,) = drawn[0].axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), values[0].mean(0))
    np.testing.assert_allclose(axes.lines[1].get_ydata(), values[1].mean(0))
    band = axes.collections[0].get_paths()[0].vertices
    at_2 = band[band[:, 0] == 2.0, 1]
    expected = estimate(values[0])
    assert (at_2.min(), at_2.max()) == pytest.approx((expected.low[2], expected.high[2]))


def test_panels_have_one_colour_per_label_and_intervals_as_bars_where_x_has_names(tmp_path, drawn):
    lines = [Line("a", [0, 1], [1.0, 2.0], [0.5, 1.5], [1.5, 2.5]), Line("b", [0, 1], [3.0, 4.0])]
    shown = [Panel("one", "x", "y", lines, places=["p", "q"]), Panel("two", "x", "y", lines[::-1], y_log=True)]
    panels(shown, tmp_path / "panels.png", title="t")
    one, two = drawn[0].axes
    assert [line.get_color() for line in one.lines] == [line.get_color() for line in two.lines][::-1]
    (bars,) = one.collections
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [[0.5, 1.5], [1.5, 2.5]]
    assert [label.get_text() for label in one.get_xticklabels()] == ["p", "q"]
    assert two.get_yscale() == "log"


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"fedpg\[plot\]"):
        learning_curves([], tmp_path / "x.png", title="t")

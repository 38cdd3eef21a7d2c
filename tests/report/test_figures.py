"""Pictures have the lines that they should have."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fedpg.errors import UserError
from fedpg.report import figures
from fedpg.report.figures import Line, Panel, panels
from fedpg.report.statistics import estimate


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved."""
    found, save = [], figures._saved
    monkeypatch.setattr(figures, "_saved", lambda figure, path: (found.append(figure), save(figure, path))[1])
    return found


def test_a_line_has_its_values_and_its_interval(tmp_path, drawn):
    found = estimate(np.random.default_rng(0).uniform(size=(3, 5)))
    lines = [Line("a", np.arange(5), found.mean, found.low, found.high), Line("_worst", np.arange(5), found.low, style="--")]
    assert panels([Panel("p", "x", "y", lines)], tmp_path / "deep" / "curves.png", title="t").exists()
    (axes,) = drawn[0].axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), found.mean)
    assert axes.lines[0].get_color() == axes.lines[1].get_color()
    band = axes.collections[0].get_paths()[0].vertices
    at_2 = band[band[:, 0] == 2.0, 1]
    assert (at_2.min(), at_2.max()) == pytest.approx((found.low[2], found.high[2]))


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
        panels([], tmp_path / "x.png", title="t")

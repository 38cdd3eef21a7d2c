"""Pictures have the lines that they should have."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from PIL import Image

from fedpg.errors import UserError
from fedpg.report import figures
from fedpg.report.figures import Heat, Line, Panel, above_heat_map, heat_map, panels
from fedpg.report.statistics import estimate
from fedpg.report.style import PALETTE, STYLES, WIDTH


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved."""
    found, save = [], figures._saved
    monkeypatch.setattr(figures, "_saved", lambda figure, paths: (found.append(figure), save(figure, paths))[1])
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


def test_panels_have_one_colour_per_label_and_one_legend(tmp_path, drawn):
    lines = [Line("CALM", [1, 2], [1.0, 2.0]), Line("b", [1, 2], [3.0, 4.0], style="o")]
    panels(
        [Panel("one", "x", "y", lines), Panel("two", "x", "y", lines[::-1], y_scale="log", guides=[2.0])],
        tmp_path / "a.png",
        tmp_path / "a.svg",
    )
    one, two = drawn[0].axes
    assert [line.get_color() for line in one.lines] == [line.get_color() for line in two.lines[:2]][::-1]
    assert one.lines[0].get_color() == PALETTE[STYLES["calm"].colour]
    assert [line.get_linestyle() for line in one.lines] == ["-", "None"]
    assert two.get_yscale() == "log"
    assert two.lines[2].get_ydata() == [2.0, 2.0]
    (legend,) = drawn[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["CALM", "b"]
    assert (tmp_path / "a.svg").exists()


def test_rows_have_names_from_the_top_bars_and_arrows_for_what_never_ends(tmp_path, drawn):
    rows = [
        Line("a", [1.0], [0], [0.5], [1.5], "o"),
        Line("b", [3.0], [1], [2.0], [np.inf], "o"),
        Line("c", [np.inf], [2], [np.inf], [np.inf], "o"),
    ]
    panels([Panel("p", "x", "", rows, names=["a", "b", "c"], guides=[1.0])], tmp_path / "rows.png")
    (axes,) = drawn[0].axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]
    assert axes.yaxis_inverted()
    (bar,) = axes.collections
    assert bar.get_segments()[0][:, 0].tolist() == [0.5, 1.5]
    assert len(axes.texts) == 1  # the arrow of b
    assert ">" in {line.get_marker() for line in axes.lines}
    assert not drawn[0].legends  # the names say it all


def test_numbers_stand_in_a_heat_map(tmp_path, drawn):
    values = np.array([[1.0, 20.0], [3.0, 4.0]])
    heat_map(values, ["a", "b"], ["x", "y"], tmp_path / "heat.png", title="t")
    above_heat_map(
        Panel("p", "x", "y", [Line("a", [0, 1], [1.0, 2.0])]), Heat("t", values, ["a", "b"], ["x", "y"], groups=(1,)), tmp_path / "b.png"
    )
    assert [text.get_text() for text in drawn[0].axes[0].texts] == ["1", "20", "3", "4"]
    left, right = drawn[1].axes[:2]
    assert (len(left.lines), len(right.texts)) == (1, 4)


def test_a_png_has_200_dots_per_inch_and_a_palette(tmp_path):
    path = panels([Panel("p", "x", "y", [Line("a", [0, 1], [1.0, 2.0])])], tmp_path / "p.png", columns=1)
    with Image.open(path) as image:
        assert (image.width, image.mode) == (int(200 * WIDTH), "P")


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"fedpg\[plot\]"):
        panels([Panel("p", "x", "y", [])], tmp_path / "x.png", title="t")


def test_few_whole_numbers_along_an_axis_that_is_not_linear_are_its_labels(tmp_path, drawn):
    agents, eta = (Panel("p", "x", "y", [Line("CALM", x, [1.0, 2.0, 3.0])], x_scale="log") for x in ([3, 12, 48], [0.01, 0.2, 3.0]))
    panels([agents, eta], tmp_path / "a.png")
    first, second = drawn[0].axes
    assert [label.get_text() for label in first.get_xticklabels()] == ["3", "12", "48"]
    assert first.get_xticks(minor=True).tolist() == []
    assert second.get_xticks().tolist() != [0.01, 0.2, 3.0]

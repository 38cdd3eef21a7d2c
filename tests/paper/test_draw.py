"""Figures are drawn from rows alone; stored results have figures, and methods keep their colours."""

from pathlib import Path

import numpy as np
import pytest

from fedpg import paper
from fedpg.paper import draw
from fedpg.paper.results import Figure, Plot, Result, exactly, line, load, select
from fedpg.report.figures import Heat
from fedpg.report.statistics import Estimate

DATA = Path(__file__).parents[2] / "docs" / "data" / "reproduction"


def test_lines_are_selected_sorted_and_told_apart():
    values = Estimate(np.array([3.0, 1.0]), np.array([2.0, 0.5]), np.array([4.0, 1.5]), 5)
    points = [p for k in (1, 8) for p in line("objective", values, "eta", [0.1, 0.01], method="PAvg", K=k, task="conflict")]
    plot = Plot(title="p", quantity="objective", x="eta", where={"task": "conflict"}, series=("method", "K"))
    drawn = draw.panel(plot, [*points, exactly("objective", 9.0, eta=0.1, method="PAvg", K=1, task="other")])
    assert [one.label for one in drawn.lines] == ["PAvg, K = 1", "PAvg, K = 8"]
    assert drawn.lines[0].x.tolist() == [0.01, 0.1]
    assert drawn.lines[0].y.tolist() == [1.0, 3.0]
    assert drawn.lines[0].low.tolist() == [0.5, 2.0]
    assert drawn.y_label == "J"


def test_a_fitted_law_goes_through_its_points_and_the_promised_one_has_its_slope():
    law = [exactly("samples", 8.0 * x**-1.5, eps=x, method="A") for x in (0.1, 0.2, 0.4)]
    drawn = draw.panel(Plot(title="r", quantity="samples", x="eps", fit=True, slope=-1.5), law)
    np.testing.assert_allclose(drawn.lines[1].y, drawn.lines[0].y, rtol=1e-5)
    np.testing.assert_allclose(np.diff(np.log(drawn.lines[2].y)) / np.diff(np.log(drawn.lines[2].x)), -1.5)
    assert drawn.x_label == "eps: mean over rounds of |grad J|²"


def test_names_stand_in_their_order_and_series_have_markers():
    rows = [exactly("score", value, method=name, K=k) for k in (1, 8) for name, value in (("PAvg", 0.2 * k), ("CALM", 0.9 * k))]
    best = Plot(title="q", quantity="score", names="method", where={"K": 8}, series=())
    assert draw.panel(best, rows).names == ("CALM", "PAvg")
    assert draw.panel(best.__class__(title="q", quantity="score", names="method", series=(), lowest_first=True), rows).names == (
        "PAvg",
        "CALM",
    )
    both = draw.panel(Plot(title="q", quantity="score", names="method", order=("PAvg", "CALM"), series=("K",)), rows)
    assert both.keys == [("K = 1", "o"), ("K = 8", "s")]
    assert [(one.label, one.marker, round(one.y[0], 3)) for one in both.lines[:3]] == [
        ("PAvg", "o", -0.125),
        ("CALM", "o", 0.875),
        ("PAvg", "s", 0.125),
    ]


def test_what_never_ends_is_infinite_and_published_numbers_have_their_own_line():
    rows = [exactly("score", np.inf, method="PAvg"), exactly("score", 1.0, method="CALM", published=2.0, error=0.5)]
    first, second, paper_line = draw.panel(Plot(title="q", quantity="score", names="method", series=()), rows).lines
    assert (first.x[0], second.x[0]) == (np.inf, 1.0)
    assert (paper_line.label, paper_line.low, paper_line.high) == ("published", [1.5], [2.5])


def test_a_heat_map_has_gaps_where_there_is_no_row():
    rows = [exactly("return", 1.0, method="A", attack="zero"), exactly("return", 2.0, method="B", attack="noise")]
    drawn = draw.panel(Plot(title="h", quantity="return", names="method", x="attack", heat=True), rows)
    assert isinstance(drawn, Heat)
    assert (drawn.rows, drawn.columns) == (("A", "B"), ("zero", "noise"))
    np.testing.assert_array_equal(drawn.values, [[1.0, np.nan], [np.nan, 2.0]])


def test_a_figure_is_saved_in_every_format(monkeypatch, tmp_path):
    plots = [Plot(title="q", quantity="score", names="method", series=())]
    rows = [exactly("score", value, method=name) for name, value in (("A", 0.2), ("B", np.inf))]
    monkeypatch.setattr(paper, "figures", lambda result: [Figure(plots=plots, rows=rows, suffix="x")])
    (path,) = draw.draw(Result(name="table-2"), tmp_path / "deep")
    assert path == tmp_path / "deep" / "table-2-x.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in path.with_suffix(".svg").read_text()


@pytest.mark.parametrize("name", [path.stem for path in sorted(DATA.glob("*.json"))])
def test_no_panel_of_a_stored_result_is_empty(name):
    result = load(DATA / f"{name}.json")
    figures = paper.figures(result)
    assert figures
    assert len({figure.suffix for figure in figures}) == len(figures)
    for figure in figures:
        for plot in figure.plots:
            drawn = draw.panel(plot, figure.rows)
            assert drawn.values.size if isinstance(drawn, Heat) else drawn.lines, (figure.suffix, plot.title)


def test_the_heat_map_of_attacks_is_in_percent_of_the_clean_return():
    figures = paper.figures(load(DATA / "attacks.json"))
    for figure in figures:
        clean = select(figure.rows, method="PAvg, mean", attack="none")
        assert [row.mean for row in clean] == pytest.approx([100.0])

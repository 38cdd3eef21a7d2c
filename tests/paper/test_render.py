"""Tables show the fields that differ; figures are drawn from rows alone."""

import io

import numpy as np
from rich.console import Console

from fedpg.paper import render
from fedpg.paper.results import Plot, Result, Row, exactly, line
from fedpg.paper.verdict import Verdict
from fedpg.report import figures
from fedpg.report.statistics import Estimate


def made(**keys):
    return Row(quantity="objective", mean=1.0, low=0.5, high=1.5, n=3, **keys)


def test_columns_are_the_fields_that_differ():
    head, cells = render.table([made(method="PAvg", K=8, task="doors"), made(method="SCAFFOLD", K=8, task="doors")])
    assert head == ["method", "J", "95 % interval", "n"]
    assert cells == [["PAvg", "1", "0.5 to 1.5", "3"], ["SCAFFOLD", "1", "0.5 to 1.5", "3"]]


def test_comparisons_published_numbers_and_verdicts_have_their_places():
    rows = [
        made(
            method="A",
            against="B",
            comparison="/",
            eta=0.1,
            against_eta=0.2,
            published=2.0,
            error=0.1,
            verdict=Verdict("fails", "above", 1.0),
        ),
        exactly("trajectories to the goal", np.inf, method="A", eta=0.1, flags=("edge of the grid",)),
    ]
    head, cells = render.table(rows)
    assert head == ["quantity", "method", "eta", "published", "ours", "95 % interval", "n", "verdict"]
    assert cells[0] == ["J", "A / B", "0.1, 0.2", "2 ± 0.1", "1", "0.5 to 1.5", "3", "does not hold (above 1)"]
    assert cells[1][4:] == ["never", "never to never", "1", "edge of the grid"]


def test_the_terminal_has_one_table_per_quantity():
    result = Result(
        title="Title",
        scale="smoke",
        rows=[made(method="PAvg"), exactly("score", 0.5, method="PAvg"), made(method="MFPO")],
        notes=["a note"],
    )
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(*render.terminal(result), sep="\n")
    lines = [line.strip() for line in console.export_text().splitlines()]
    assert lines[0] == "Title (smoke)"
    assert lines.index("J") < lines.index("score (interquartile mean)")
    assert sum("MFPO" in line for line in lines) == 1
    assert lines[-1] == "- a note"


def test_lines_are_selected_sorted_and_told_apart(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(render, "panels", lambda panels, path, title: drawn.extend(panels) or path)
    values = Estimate(np.array([3.0, 1.0]), np.array([2.0, 0.5]), np.array([4.0, 1.5]), 5)
    points = [p for k in (1, 8) for p in line("objective", values, "eta", [0.1, 0.01], method="PAvg", K=k, task="conflict")]
    bars = [exactly("score", value, method=name, task="all tasks") for name, value in (("A", 0.2), ("B", 0.9))]
    law = [exactly("samples", 8.0 * x**-1.5, eps=x, method="A") for x in (0.1, 0.2, 0.4)]
    plots = [
        Plot(title="p", quantity="objective", x="eta", where={"task": "conflict"}, series=("method", "K")),
        Plot(title="q", quantity="score", x="method", series=()),
        Plot(title="r", quantity="samples", x="eps", fit=True, slope=-1.5),
    ]
    render.draw(Result(title="t", rows=bars, points=points + law, plots=plots), tmp_path / "p.png")
    first, second, third = drawn
    assert [one.label for one in first.lines] == ["PAvg, K = 1", "PAvg, K = 8"]
    assert first.lines[0].x.tolist() == [0.01, 0.1]
    assert first.lines[0].y == [1.0, 3.0]
    assert first.lines[0].low == [0.5, 2.0]
    assert second.places == ["B", "A"]
    np.testing.assert_allclose(third.lines[1].y, third.lines[0].y, rtol=1e-5)  # the fitted power law goes through the points
    np.testing.assert_allclose(np.diff(np.log(third.lines[2].y)) / np.diff(np.log(third.lines[2].x)), -1.5)


def test_a_result_can_be_drawn(tmp_path):
    rows = [exactly("score", value, method=name) for name, value in (("A", 0.2), ("B", 0.9))]
    path = render.draw(
        Result(title="t", rows=rows, plots=[Plot(title="q", quantity="score", x="method", series=())]), tmp_path / "d" / "p.png"
    )
    assert path.read_bytes().startswith(b"\x89PNG")
    assert figures.panels is render.panels

"""Tables show the fields that differ."""

import io

import numpy as np
from rich.console import Console

from fedpg.paper import render
from fedpg.paper.results import Result, Row, exactly
from fedpg.paper.verdict import Verdict


def made(**keys):
    return Row(quantity="objective", mean=1.0, low=0.5, high=1.5, n=3, **keys)


def test_columns_are_the_fields_that_differ():
    rows = [made(method="PAvg", K=8, task="doors"), made(method="SCAFFOLD", K=8, task="doors")]
    head, cells = render.table(rows)
    assert head == ["method", "J", "95 % interval"]
    assert cells == [["PAvg", "1", "0.5 to 1.5"], ["SCAFFOLD", "1", "0.5 to 1.5"]]
    assert render.constants(rows) == "doors, K = 8, n = 3"


def test_columns_that_say_nothing_are_left_out_unless_they_are_asked_for():
    rows = [exactly("score", 1.0, method="A"), exactly("score", 1.0, method="B")]
    assert render.table(rows) == (["method", "score (interquartile mean)"], [["A", "1"], ["B", "1"]])
    assert render.table(rows, ["n", "mean"]) == (["n", "score (interquartile mean)"], [["1", "1"], ["1", "1"]])


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


def test_a_verdict_is_shown_with_its_rule_and_tolerance():
    said = {
        "agrees (2.0 of at most 3 errors)": made(verdict=Verdict("holds", "agrees", 1.1, 3.0, 0.05)),
        "differs (4.0 of at most 3 errors)": made(verdict=Verdict("fails", "agrees", 1.2, 3.0, 0.05)),
        "does not hold (below 1e-12); the paper claims it": made(verdict=Verdict("fails", "below", 1e-12, paper=True)),
        "holds (at least 0.9); the paper does not claim it": made(verdict=Verdict("holds", "at least", 0.9, paper=False)),
        "unclear (near -1 ± 0.15); edge of the grid": made(verdict=Verdict("unclear", "near", -1.0, 0.15), flags=("edge of the grid",)),
        "": made(),
    }
    assert {text: render.judgement(row) for text, row in said.items()} == {text: text for text in said}


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
    assert lines.index("J (n = 3)") < lines.index("score (interquartile mean) (PAvg, n = 1)")
    assert sum("MFPO" in line for line in lines) == 1
    assert lines[-1] == "- a note"

"""Rows carry typed keys, intervals over seeds, and survive a file."""

import json

import numpy as np
import pytest

from fedpg.paper.results import Result, Row, changed, exactly, line, load, minus, number, over_seeds, row, save, select
from fedpg.paper.verdict import Verdict
from fedpg.report.statistics import estimate

ROWS = [
    row(
        "objective",
        estimate(np.array([1.0, 2.0, 3.0])),
        method="PAvg",
        eta=0.0316228,
        K=8,
        published=2.0,
        verdict=Verdict("holds", "near", 2.0, 0.1),
    ),
    exactly("trajectories to the goal", np.inf, 4, method="pooled", flags=("edge of the grid",)),
]


def test_rows_carry_the_interval_over_seeds():
    assert (ROWS[0].mean, ROWS[0].n) == (2.0, 3)
    assert ROWS[0].high == pytest.approx(2.0 + 4.302653 / np.sqrt(3), rel=1e-5)  # Student's t of two degrees of freedom


def test_a_saved_result_comes_back_and_is_plain_json(tmp_path):
    points = line("return", estimate(np.array([[1.0, 2.0], [3.0, np.nan]])), "round", np.array([0, 5]), method="PAvg")
    settings = {"seeds": np.int64(3), "etas": (0.1, np.float32(0.2)), "roots": {0.5: [1]}}
    result = Result(name="drift", title="Title", scale="smoke", settings=settings, rows=ROWS, points=points, notes=["a note"])
    path = save(result, tmp_path)
    text = json.loads(path.read_text(), parse_constant=lambda name: 1 / 0)  # no NaN, no Infinity
    assert text["made_with"]["packages"]["jax"]
    back = load(path)
    assert (back.rows, back.points) == (ROWS, points)
    assert back.settings == {"seeds": 3, "etas": [0.1, 0.2], "roots": {"0.5": [1]}}
    assert [point.mean for point in back.points] == [2.0, None]
    assert len(path.read_text().splitlines()) < 25  # a row is a line


def test_a_field_of_the_wrong_type_is_refused(tmp_path):
    path = save(Result(name="x", rows=ROWS), tmp_path)
    path.write_text(path.read_text().replace('"K":8', '"K":"eight"'))
    with pytest.raises(ValueError, match="Expected `int"):
        load(path)


def test_rows_are_selected_by_typed_values():
    assert select(ROWS, eta=0.0316) == [ROWS[0]]  # floats to three digits
    assert select(ROWS, method=["PAvg", "pooled"], K=None) == [ROWS[1]]
    assert select(ROWS, method="pavg") == []


def test_failed_seeds_are_left_out():
    objective = np.array([[1.0, 3.0, np.nan], [np.nan, np.nan, np.nan]])
    assert over_seeds(objective[0])[::3] == (2.0, 2)
    both = over_seeds(objective)
    assert both.seeds == 2
    np.testing.assert_array_equal(both.mean, [2.0, np.nan])


def test_numbers_have_six_digits_or_are_none():
    assert (number(1 / 3), number(np.nan), number(None), number("0.026")) == (0.333333, None, None, 0.026)
    assert Row(quantity="x").mean is None


def test_rows_are_selected_by_one_flag_or_none():
    rows = [exactly("a", 1.0, flags=("best rival", "edge of the grid")), exactly("b", 2.0)]
    assert [found.quantity for found in select(rows, flags="best rival")] == ["a"]
    assert [found.quantity for found in select(rows, flags="")] == ["b"]


def test_differences_keep_the_interval_of_the_row_and_leave_out_what_has_no_baseline():
    found = Row(quantity="return", mean=3.0, low=2.0, high=None, round=1)
    assert changed(found, 2.0, 1.0, method="x") == Row(quantity="return", mean=7.0, low=5.0, high=None, round=1, method="x")
    base = [Row(quantity="return", mean=1.0, round=1), Row(quantity="return", mean=None, round=2)]
    (gap,) = minus([found, Row(quantity="return", mean=4.0, round=2), Row(quantity="return", mean=4.0, round=3)], base, "round")
    assert (gap.mean, gap.low, gap.high) == (2.0, 1.0, None)

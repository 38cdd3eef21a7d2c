"""What is saved is what was found, and verdicts follow from numbers."""

from __future__ import annotations

import json

import numpy as np

from fedpg.paper.outcome import Outcome, Row, load, row, save, standard_errors
from fedpg.report.figures import Line, Panel, panels
from fedpg.report.stats import estimate


def outcome():
    lines = [
        Line("a", np.array([1, 2]), np.array([0.5, np.nan]), np.array([0.4, 0.4]), np.array([0.6, 0.6]), "o-"),
        Line("b", [1, 2], [2, 3]),
    ]
    rows = [Row("mean", 2.0, 1.5, 2.5, 9, published=2.0), Row("never", float("inf"), 1.0, float("inf"), 4, verdict="holds")]
    return Outcome(
        "drift", "Title", "smoke", {"seeds": np.int64(3), "lrs": (0.1, 0.2)}, rows, ["a note"], [Panel("p", "x", "y", lines, True, True)]
    )


def test_a_saved_outcome_comes_back_and_is_plain_json(tmp_path):
    path = save(outcome(), tmp_path)
    text = json.loads(path.read_text(), parse_constant=lambda name: 1 / 0)  # no NaN, no Infinity
    assert text["made_with"]["packages"]["jax"]
    back = load(path)
    assert back.rows == outcome().rows
    assert back.settings == {"seeds": 3, "lrs": [0.1, 0.2]}
    assert back.panels[0].lines[0].y == [0.5, None]
    assert (back.panels[0].x_log, back.notes, back.scale) == (True, ["a note"], "smoke")


def test_panels_of_a_loaded_outcome_can_be_drawn(tmp_path):
    picture = panels(load(save(outcome(), tmp_path)).panels * 3, tmp_path / "deep" / "p.png", title="t")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_rows_carry_the_interval_over_seeds():
    found = row("x", estimate(np.array([1.0, 2.0, 3.0])))
    assert (found.ours, found.n) == (2.0, 3)
    assert found.low < 2.0 < found.high


def test_three_of_its_errors_is_still_agreement():
    assert standard_errors(1.29, 1.0, 0.1) == "agrees (2.9 se)"
    assert standard_errors(1.31, 1.0, 0.1) == "differs (3.1 se)"

"""The pages show what the saved outcomes say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from fedpg.paper import catalogue
from fedpg.paper.outcome import Row, load

ROOT = Path(__file__).parents[1]
WRITER = runpy.run_path(str(ROOT / "benchmarks" / "write_reproduction.py"))
OUTCOMES = {path.stem: load(path) for path in sorted((ROOT / "docs" / "data" / "reproduction").glob("*.json"))}


@pytest.mark.parametrize("page", WRITER["DOCUMENTS"])
def test_every_table_is_what_the_outcomes_say(page):
    text = (ROOT / "docs" / page).read_text()
    assert WRITER["TABLE"].search(text)
    assert WRITER["written"](text, OUTCOMES) == text, "run python benchmarks/write_reproduction.py"


@pytest.mark.parametrize("name", OUTCOMES)
def test_outcomes_are_those_of_the_full_scale_and_small(name):
    assert name in catalogue.EXPERIMENTS
    assert OUTCOMES[name].scale == "full"
    assert (ROOT / "docs" / "data" / "reproduction" / f"{name}.json").stat().st_size < 100_000


def test_a_table_is_made_anew():
    row = Row("K=1: a", 1.0, 0.5, float("inf"), 3, published=2.0, published_error=0.1, verdict="holds")
    outcome = OUTCOMES["drift"].__class__("drift", "", "full", {}, [row, row._replace(what="K=2: a")], [], [])
    text = WRITER["written"]("before\n<!-- drift: K=1 & a -->\nstale\n<!-- end -->\nafter", {"drift": outcome})
    assert "| K=1: a | 2 ± 0.1 | 1 | 0.5 to never | 3 | holds |" in text
    assert "stale" not in text
    assert "K=2" not in text
    assert text.startswith("before")
    assert text.endswith("after")


def test_table_2_is_a_grid_with_distances_in_published_errors():
    rows = [
        Row(f"heavy ball, kappa {k}, beta {b}", 7.9, 7.8, 8.0, 9, published=8.0, published_error=0.05) for k in (0, 1) for b in (0.1, 1)
    ]
    assert WRITER["grid"](rows, "heavy ball")[2] == "| 0.1 | 7.900 (2.0) | 7.900 (2.0) |"


def test_a_search_is_told_by_what_every_rule_has_over_pavg_on_the_same_seeds():
    curves = {
        "1": {"near": {"pavg": [[0.0, 2.0], [1.0, 3.0]], "longer": [[1.0, 3.0], [2.0, 6.0]]}, "far": {"alone": [[9.0, 9.0]]}},
        "2": {"near": {"pavg": [[5.0, 5.0]], "longer": [[6.5, 6.5]]}},
    }
    # 1, 2 and 1.5 ahead: the mean, and 4.303 times 0.5 / sqrt(3)
    assert WRITER["search"](curves)[2:] == ["| longer | 1.5 ± 1.2 (n = 3) |"]


def test_attacks_are_a_grid_with_what_is_lost_in_bold():
    names = ("pavg, mean: none", "pavg, mean: zero", "fedpg-br: none", "fedpg-br: zero")
    rows = [Row(f"h = 2, {name}", ours, ours - 1.0, ours + 1.0, 9) for name, ours in zip(names, (100.0, 89.0, 80.0, 79.0), strict=True)]
    rows += [
        Row("h = 1, pavg, mean: none", 5.0, 5.0, 5.0, 9),
        Row("h = 2, fedpg-br: share left under its worst attack, zero", 0.9, 0.9, 0.9, 9),
    ]
    assert WRITER["under"](rows, "h = 2") == [
        "| | none | zero |",
        "|---|---|---|",
        "| pavg, mean | 100.0 ± 1.0 | **89.0 ± 1.0** |",
        "| fedpg-br | 80.0 ± 1.0 | 79.0 ± 1.0 |",
    ]

"""The pages show what the stored results say."""

import runpy
from pathlib import Path

import pytest

from fedpg import paper
from fedpg.paper.results import Row, exactly, load
from fedpg.paper.verdict import Verdict

ROOT = Path(__file__).parents[1]
WRITER = runpy.run_path(str(ROOT / "benchmarks" / "write_reproduction.py"))
RESULTS = {path.stem: load(path) for path in sorted(WRITER["DATA"].glob("*.json"))}


@pytest.mark.parametrize("page", WRITER["PAGES"])
def test_every_table_is_what_the_results_say(page):
    text = (ROOT / "docs" / page).read_text()
    assert WRITER["TABLE"].search(text)
    assert "| ours |" in text or "± " in text
    assert WRITER["written"](text, RESULTS) == text, "run python benchmarks/write_reproduction.py"


def test_no_table_is_empty():
    for page in WRITER["PAGES"]:
        for name, marker in WRITER["TABLE"].findall((ROOT / "docs" / page).read_text()):
            conditions = [part.strip() for part in marker.split(";") if not part.strip().startswith("grid")]
            assert WRITER["selected"](RESULTS[name], conditions), (name, marker)


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_of_full_scale_and_small(name):
    assert name in paper.EXPERIMENTS
    assert (RESULTS[name].name, RESULTS[name].scale) == (name, "full")
    assert (WRITER["DATA"] / f"{name}.json").stat().st_size < 100_000


def made(**keys):
    return Row(quantity="objective", low=7.8, high=8.0, n=9, **{"mean": 7.9} | keys)


def test_a_table_is_made_anew_from_typed_conditions():
    rows = [
        made(method="PAvg", K=8, eta=0.1, flags=("x",)),
        made(method="MFPO", K=8),
        made(method="PAvg", K=1),
        made(method="PAvg, a", K=8),
    ]
    result = RESULTS["drift"].__class__(rows=rows)
    text = WRITER["written"]("before\n<!-- drift: K=8; method=PAvg|MFPO -->\nstale\n<!-- end -->\nafter", {"drift": result})
    assert "| PAvg | 0.1 | 7.9 | 7.8 to 8 | 9 | x |" in text
    assert "stale" not in text
    assert "PAvg, a" not in text
    assert text.startswith("before")
    assert text.endswith("after")
    (row,) = WRITER["selected"](result, ["eta=", "method=PAvg"])
    assert row.K == 1


def test_a_grid_shows_distances_from_published_numbers():
    agreed = Verdict("holds", "agrees", 8.0, 3.0, 0.05)
    rows = [made(heterogeneity=float(k), beta=b, published=8.0, error=0.05, verdict=agreed) for k in (0, 1) for b in (0.1, 1.0)]
    head, cells = WRITER["grid"](rows, "beta", "heterogeneity", 3)
    assert (head, cells[0]) == (["beta", "kappa 0", "kappa 1"], ["0.1", "7.900 (2.0)", "7.900 (2.0)"])


def test_a_grid_shows_failures_in_bold_and_gaps():
    rows = [
        made(method="A", attack="none", verdict=Verdict("holds", "at least", 7.0)),
        made(method="A", attack="zero", verdict=Verdict("fails", "at least", 9.0)),
        made(method="B", attack="none"),
        exactly("exchanges", 2.0, method="B", attack="zero"),
    ]
    _, cells = WRITER["grid"](rows, "method", "attack", 1)
    assert cells == [["A", "7.9 ± 0.1", "**7.9 ± 0.1**"], ["B", "7.9 ± 0.1 (n = 9)", "2"]]


def test_bars_in_cells_are_escaped():
    assert WRITER["markdown"](["|grad J|^2"], [["1"]]) == ["| \\|grad J\\|^2 |", "|---|", "| 1 |"]

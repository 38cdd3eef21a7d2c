"""The pages show what the stored results say."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from fedpg import paper
from fedpg.paper.results import Row, exactly, load
from fedpg.paper.verdict import Verdict

ROOT = Path(__file__).parents[1]
WRITER = runpy.run_path(str(ROOT / "benchmarks" / "write_reproduction.py"))
RESULTS = {path.stem: load(path) for path in sorted(WRITER["DATA"].glob("*.json"))}


PAGES = {path: path.read_text() for path in sorted(WRITER["DOCS"].rglob("*.md"))}
HANDWRITTEN = [path for path, text in PAGES.items() if WRITER["TABLE"].search(text) and WRITER["APPENDIX"] not in path.parents]


def test_every_page_is_what_the_results_say():
    made = WRITER["pages"](RESULTS)
    assert WRITER["DOCS"] / "explanation" / "findings.md" in made
    assert WRITER["APPENDIX"] / "arena.md" in made
    wrong = [str(path.relative_to(ROOT)) for path, text in made.items() if PAGES.get(path) != text]
    assert wrong == [], "run python benchmarks/write_reproduction.py"


def test_a_stale_page_fails_the_check(monkeypatch, tmp_path):
    main = WRITER["main"]
    monkeypatch.setattr(sys, "argv", ["write_reproduction.py", "--check"])
    page = tmp_path / "page.md"
    monkeypatch.setitem(main.__globals__, "pages", lambda results: {page: "new"})
    assert main() == 1
    page.write_text("old")
    assert main() == 1
    page.write_text("new")
    assert main() == 0


def test_the_appendix_has_a_page_and_pictures_for_every_result_and_no_other():
    folder, images = WRITER["APPENDIX"], WRITER["IMAGES"]
    assert {path.stem for path in folder.glob("*.md")} == {"index", *RESULTS}
    for name in RESULTS:
        shown = re.findall(r"\(\.\./\.\./images/(.+?)\.svg\)", (folder / f"{name}.md").read_text())
        assert shown
        for each in shown:
            for kind in ("svg", "png"):
                assert (images / f"{each}.{kind}").stat().st_size < 300_000


def test_tables_of_the_appendix_have_no_column_that_says_nothing():
    for path in WRITER["APPENDIX"].glob("*.md"):
        assert "| 1 to 1 |" not in path.read_text(), path.name


def test_findings_are_short_and_have_a_figure_and_a_table_each():
    path = WRITER["DOCS"] / "explanation" / "findings.md"
    assert path.stat().st_size <= 12_000
    for finding in path.read_text().split("\n## ")[1:]:
        assert len(re.findall(r"^!\[", finding, re.MULTILINE)) == 1, finding[:60]
        (table,) = WRITER["TABLE"].finditer(finding)
        assert table[0].count("\n| ") <= 10, finding[:60]


def test_no_table_is_empty():
    for page in HANDWRITTEN:
        for name, marker in WRITER["TABLE"].findall(PAGES[page]):
            conditions = [part.strip() for part in marker.split(";") if not re.match(" *(grid|columns) ", part)]
            assert WRITER["selected"](RESULTS[name], conditions), (name, marker)


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_of_full_scale_and_small(name):
    assert name in paper.EXPERIMENTS
    assert (RESULTS[name].name, RESULTS[name].scale) == (name, "full")
    assert (WRITER["DATA"] / f"{name}.json").stat().st_size < 200_000


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
    assert "| PAvg | 0.1 | 7.9 | 7.8 to 8 | x |" in text
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
    assert (head, cells[0]) == (["beta", "kappa = 0", "kappa = 1"], ["0.1", "7.900 (2.0)", "7.900 (2.0)"])


def test_a_grid_shows_failures_in_bold_and_gaps():
    rows = [
        made(method="A", attack="none", verdict=Verdict("holds", "at least", 7.0)),
        made(method="A", attack="zero", verdict=Verdict("fails", "at least", 9.0)),
        made(method="B", attack="none"),
        exactly("exchanges", 2.0, method="B", attack="zero"),
    ]
    _, cells = WRITER["grid"](rows, "method", "attack", 1)
    assert cells == [["A", "7.9 ± 0.1", "**7.9 ± 0.1**"], ["B", "7.9 ± 0.1", "2"]]


def test_bars_in_cells_are_escaped():
    assert WRITER["markdown"](["|grad J|^2"], [["1"]]) == ["| \\|grad J\\|^2 |", "|---|", "| 1 |"]


def test_columns_can_be_chosen_and_flags_are_conditions():
    result = RESULTS["drift"].__class__(rows=[made(method="CALM", K=8, flags=("best rival",)), made(method="CALM", K=8)])
    text = WRITER["written"]("<!-- drift: columns K mean; flags=best rival -->\n<!-- end -->", {"drift": result})
    assert [line for line in text.splitlines() if line.startswith("|")] == ["| K | J |", "|---|---|", "| 8 | 7.9 |"]


def test_a_number_with_its_source_at_the_end_of_a_line_is_no_table():
    text = "29<!-- table-2: quantity=cells; mean -->\nof 30\n<!-- drift: K=8 -->\n<!-- end -->"
    assert [match[1] for match in WRITER["TABLE"].finditer(text)] == ["drift"]


def test_long_tables_are_split_and_comparisons_stand_apart():
    rows = [made(method=f"m{i}", task=task) for task in ("a", "b") for i in range(20)] + [
        made(method="m1", against="m2", comparison="-", task="a")
    ]
    assert [len(part) for part in WRITER["parts"](rows)] == [20, 20, 1]
    assert [len(part) for part in WRITER["parts"](rows[:20])] == [20]

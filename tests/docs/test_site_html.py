"""The hook that makes tables fit the page, and figures large enough on a phone."""

from __future__ import annotations

import re
import runpy

from markdown import markdown

from helpers.pages import ROOT

CONTENT = runpy.run_path(str(ROOT / "tools" / "site_html.py"))["on_page_content"]


def classes(rows: list[list[str]]) -> list[str]:
    """What the hook says of every column of a table, from its first row of cells."""
    header = [["name"] * len(rows[0]), ["---"] * len(rows[0])]
    text = "\n".join(f"| {' | '.join(row)} |" for row in header + rows)
    return re.findall(r'<td class="(\w+)">', CONTENT(markdown(text, extensions=["tables"])))[: len(rows[0])]


def test_short_columns_are_not_broken_and_the_longest_cell_counts():
    assert classes([["HalfCheetah", "2295 to 4946", "holds"], ["x", "1", "does not hold (at least 3500)"]]) == ["short", "short", "long"]
    assert classes([["[`a_code_in_a_link`](https://example.org)", "`a &lt; b`"]]) == ["short", "short"]


def test_a_table_wider_than_the_page_breaks_all_but_names_and_numbers():
    assert classes([["PAvg", *["99.98 [99.8, 100]"] * 3]]) == ["short"] * 4
    assert classes([["PAvg, median", *["99.98 [99.8, 100]"] * 8, "0.5"]]) == ["short", *["long"] * 8, "short"]


def test_figures_open_at_full_size_unless_they_are_links():
    found = CONTENT(markdown("![a](b.png)\n\n[![c](d.png)](e.html)"))
    assert found.count("<a ") == 2
    assert '<a href="b.png"><img alt="a" src="b.png"' in found
    assert '<a href="e.html"><img alt="c" src="d.png"' in found


def test_only_wide_tables_of_a_terminal_are_marked():
    code, narrow, wide = (
        "<pre><code>a = 1</code></pre>",
        "<pre><code>┃ a ┃\n</code></pre>",
        f"<pre><code>┏━┓\n┃ {'a' * 110} ┃\n</code></pre>",
    )
    assert CONTENT(code + narrow + wide) == code + narrow + wide.replace("<pre>", '<pre class="printed">')


def test_a_long_heading_has_room_above_short_cells():
    found = CONTENT(markdown("| method | share of the clean return |\n|---|---|\n| PAvg | 0.5 |", extensions=["tables"]))
    assert re.findall(r'class="(\w+)"', found) == ["short", "long", "short", "short"]

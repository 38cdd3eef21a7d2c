"""Writes the tables of docs/reproduction.md and docs/how-to/agents-that-lie.md from the results in docs/data/reproduction, and draws the figures.

python benchmarks/write_reproduction.py            after `fedpg reproduce all --scale full --out docs/data/reproduction`
python benchmarks/write_reproduction.py --check    exit code 1 if a table is not what the results say

In a page a table stands between `<!-- NAME: FIELD=VALUE; FIELD=VALUE -->` and `<!-- end -->`: the rows of result NAME whose fields have
these values; `VALUE|VALUE` allows several, and an empty value means that the field is not set. With `grid DOWN ACROSS DECIMALS;` in front
it is a grid of two fields.
"""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpg.paper.render import FIELDS, draw, heading, identity, table
from fedpg.paper.results import Result, Row, load, select

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("reproduction.md", "how-to/agents-that-lie.md")
DATA = DOCS / "data" / "reproduction"
TABLE = re.compile(r"<!-- ([a-z0-9-]+): ([^>]*?) -->\n.*?<!-- end -->", re.DOTALL)
TYPES = typing.get_type_hints(Row)


def value_of(field: str, text: str) -> Any:
    """A value of a marker, of its field's type."""
    kinds = typing.get_args(TYPES[field]) or (TYPES[field],)
    return (None if type(None) in kinds else "") if text == "" else kinds[0](text)


def selected(result: Result, conditions: Sequence[str]) -> list[Row]:
    """The rows that satisfy all conditions FIELD=VALUE."""
    pairs = [condition.split("=", 1) for condition in conditions]
    return select(result.rows, **{name: [value_of(name, text) for text in values.split("|")] for name, values in pairs})


def grid(rows: Sequence[Row], down: str, across: str, decimals: int) -> tuple[list[str], list[list[str]]]:
    """One number per pair of two fields.

    The number is followed by its distance from the published one in errors, or by half its interval; bold where a verdict fails.
    """
    by_place = {(identity(row, down), identity(row, across)): row for row in rows}
    sides = [list(dict.fromkeys(place[i] for place in by_place)) for i in (0, 1)]

    def cell(row: Row | None) -> str:
        if row is None:
            return ""
        mean = f"{row.mean:.{decimals}f}"
        if row.verdict is not None and row.verdict.rule == "agrees":
            return f"{mean} ({abs(row.mean - row.published) / row.error:.1f})"
        if row.low == row.high:
            return f"{row.mean:g}" if row.n == 1 else mean
        shown = f"{mean} ± {(row.high - row.low) / 2:.{decimals}f}" + (f" (n = {row.n})" if row.verdict is None else "")
        return f"**{shown}**" if row.verdict is not None and row.verdict.outcome == "fails" else shown

    named = {"eta": "eta ", "heterogeneity": "kappa "}.get(across, "")
    head = [FIELDS[down], *(f"{named}{heading(other)}" for other in sides[1])]
    return head, [[one, *(cell(by_place.get((one, other))) for other in sides[1])] for one in sides[0]]


def markdown(head: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = ["| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in (head, *cells)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]


def written(text: str, results: dict[str, Result]) -> str:
    """A page with every table made anew."""

    def made(match: re.Match[str]) -> str:
        name, marker = match.groups()
        parts = [part.strip() for part in marker.split(";")]
        if parts[0].startswith("grid "):
            _, down, across, decimals = parts.pop(0).split()
            found = grid(selected(results[name], parts), down, across, int(decimals))
        else:
            found = table(selected(results[name], parts))
        return "\n".join([f"<!-- {name}: {marker} -->", "", *markdown(*found), "", "<!-- end -->"])

    return TABLE.sub(made, text)


def main() -> int:
    results = {path.stem: load(path) for path in sorted(DATA.glob("*.json"))}
    before = {DOCS / name: (DOCS / name).read_text() for name in PAGES}
    after = {path: written(text, results) for path, text in before.items()}
    if "--check" in sys.argv[1:]:
        return int(before != after)
    for path, text in after.items():
        path.write_text(text)
    for name, result in results.items():
        if result.plots:
            draw(result, DOCS / "images" / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())

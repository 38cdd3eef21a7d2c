"""Writes everything that is made of the results in docs/data/reproduction: tables, figures and the appendix docs/reference/results.

python benchmarks/write_reproduction.py            after `fedpg reproduce all --scale full --out docs/data/reproduction`
python benchmarks/write_reproduction.py NAME ...   only these figures; all tables
python benchmarks/write_reproduction.py --check    exit code 1 if a page is not what the results say

In a hand-written page a table stands between `<!-- NAME: FIELD=VALUE; FIELD=VALUE -->` and `<!-- end -->`: the rows of result NAME whose
fields have these values; `VALUE|VALUE` allows several, and an empty value means that the field is not set. In front may stand
`grid DOWN ACROSS DECIMALS;`, a grid of two fields, or `columns NAME NAME;`, the columns to show.
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpg import paper
from fedpg.paper.draw import draw
from fedpg.paper.render import FIELDS, constants, heading, identity, table, text
from fedpg.paper.results import Result, Row, load, select

DOCS = Path(__file__).parents[1] / "docs"
DATA, IMAGES, APPENDIX = DOCS / "data" / "reproduction", DOCS / "images", DOCS / "reference" / "results"
TABLE = re.compile(r"^<!-- ([a-z0-9-]+): ([^>]*?) -->\n.*?<!-- end -->", re.DOTALL | re.MULTILINE)
TYPES = typing.get_type_hints(Row)
SPLIT, LONG, GRID = ("task", "heterogeneity", "K", "method"), 25, 40
"""Tables of the appendix of more than LONG rows are split by the first of these fields that has a few values; those of more than GRID rows,
or without intervals, become grids if two fields identify their rows."""
HOW_TO_READ = """\
- Intervals are 95 %, over seeds; n is the number of seeds. Each interval stands alone: none is corrected for how many there are.
- "A - B" is a difference, "A / B" a ratio and "A > B" the chance that a run of A is better, paired by seed. Two step-sizes in one cell
  belong to A and B.
- A verdict names its rule and tolerance. *above 0*: the whole interval must lie above 0. *at least*, *at most*: the mean decides.
  *near 1 ± 0.1*: the whole interval must lie within. *covers*: the interval, widened by the tolerance, must contain the number.
  *agrees*: within so many published standard errors. *Unclear*: the interval allows both answers.
- In a grid a number is followed by half its interval, or in brackets by its distance from the published number in units of its ±. Bold:
  the verdict does not hold.
- *Best rival*: the method other than CALM that was best on the tuning seeds.
"""


def value_of(field: str, text: str) -> Any:
    """A value of a marker, of its field's type; that of `flags` is one flag."""
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
        if row is None or row.mean is None:
            return "" if row is None else "never"
        mean = f"{row.mean:.{decimals}f}"
        if row.verdict is not None and row.verdict.rule == "agrees":
            return f"{mean} ({abs(row.mean - row.published) / row.error:.1f})"
        if row.low == row.high:
            return text(row.mean)
        shown = f"{mean} ± {(row.high - row.low) / 2:.{decimals}f}"
        return f"**{shown}**" if row.verdict is not None and row.verdict.outcome == "fails" else shown

    named = {"eta": "eta = ", "heterogeneity": "kappa = ", "K": "K = ", "beta": "beta = "}.get(across, "")
    head = [FIELDS.get(down, down), *(heading(other) if across == "quantity" else f"{named}{other}" for other in sides[1])]
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
        kind, *asked = parts.pop(0).split() if re.match("(grid|columns) ", parts[0]) else ["table"]
        rows = selected(results[name], parts)
        found = grid(rows, *asked[:2], int(asked[2])) if kind == "grid" else table(rows, asked)
        return "\n".join([f"<!-- {name}: {marker} -->", "", *markdown(*found), "", "<!-- end -->"])

    return TABLE.sub(made, text)


def differing(rows: Sequence[Row]) -> list[str]:
    """The fields that identify the rows."""
    return [name for name in FIELDS if len({identity(row, name) for row in rows}) > 1]


def parts(rows: list[Row]) -> Iterator[list[Row]]:
    """Rows of one quantity, those of a comparison apart from the others, in tables that are not too long."""
    for compared in (False, True):
        own = [row for row in rows if bool(row.against) == compared]
        field = next((name for name in SPLIT if 1 < len({identity(row, name) for row in own}) <= 8), None) if len(own) > LONG else None
        if own:
            yield from [select(own, **{field: value}) for value in dict.fromkeys(getattr(row, field) for row in own)] if field else [own]


def certain(rows: Sequence[Row]) -> bool:
    """Whether no row has an interval."""
    return all(row.low == row.high for row in rows)


def appendix_table(rows: list[Row]) -> list[str]:
    """A table with its caption: what all rows have in common."""
    caption, fields = constants(rows), differing(rows)
    if len(fields) == 2 and (certain(rows) or len(rows) > GRID):
        half = np.median([(row.high - row.low) / 2 for row in rows if row.low != row.high] or [1.0])
        lines = markdown(*grid(rows, *sorted(fields, key=lambda name: name != "method"), int(np.clip(1 - np.floor(np.log10(half)), 0, 4))))
    else:
        lines = markdown(*table(rows))
    return ([f"{caption}:", ""] if caption else []) + [*lines, ""]


def appendix(result: Result) -> str:
    """The page of one experiment: what it is, its figures and all its tables."""
    made = result.made_with
    device = " and ".join(dict.fromkeys(made["devices"]))
    lines = [
        f"# {result.title}", "",
        f"<!-- Made by benchmarks/write_reproduction.py from docs/data/reproduction/{result.name}.json. -->", "",
        inspect.getdoc(paper.module_of(result.name)) or "", "",
        f"`fedpg reproduce {result.name} --scale full`, {made['created'][:10]}, on {device.replace('cpu', 'a CPU').replace('NVIDIA H200', 'an NVIDIA H200')}. "
        f"[How to read the tables](index.md). [Data](../../data/reproduction/{result.name}.json).", "",
    ]  # fmt: skip
    for figure in paper.figures(result):
        name = "-".join(part for part in (result.name, figure.suffix) if part)
        lines += [f"![{name}](../../images/{name}.svg)", ""]
    by_quantity = {quantity: select(result.rows, quantity=quantity) for quantity in dict.fromkeys(row.quantity for row in result.rows)}
    plain = [quantity for quantity, rows in by_quantity.items() if certain(rows) and differing(rows) == ["method"]]
    if len(plain) > 1:
        lines += ["## " + ", ".join(plain), "", *markdown(*grid(select(result.rows, quantity=plain), "method", "quantity", 2)), ""]
    for quantity, rows in by_quantity.items():
        if len(plain) < 2 or quantity not in plain:
            lines += [f"## {heading(quantity)}", ""] + [line for part in parts(rows) for line in appendix_table(part)]
    return "\n".join(lines + [f"- {note}" for note in result.notes]).rstrip() + "\n"


def index(results: dict[str, Result]) -> str:
    """The first page of the appendix."""
    lines = ["# Results", "", "<!-- Made by benchmarks/write_reproduction.py. -->", ""]
    lines += ["All numbers of `fedpg reproduce all --scale full`. [What we found](../../explanation/findings.md) says what they mean.", ""]
    for name, what in paper.EXPERIMENTS.items():
        lines.append(f"- [{name}]({name}.md): {what}" if name in results else f"- {name}: {what}; not run at full scale yet")
    return "\n".join([*lines, "", "How to read the tables:", "", HOW_TO_READ])


def pages(results: dict[str, Result]) -> dict[Path, str]:
    """Every page that shows results, as it should be."""
    handwritten = {path: path.read_text() for path in sorted(DOCS.rglob("*.md")) if APPENDIX not in path.parents}
    found = {path: written(text, results) for path, text in handwritten.items() if TABLE.search(text)}
    return found | {APPENDIX / "index.md": index(results)} | {APPENDIX / f"{name}.md": appendix(each) for name, each in results.items()}


def main() -> int:
    results = {path.stem: load(path) for path in sorted(DATA.glob("*.json"))}
    asked, after = sys.argv[1:], pages(results)
    if asked == ["--check"]:
        return int(any(not path.exists() or path.read_text() != page for path, page in after.items()))
    for path, page in after.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page)
    for name in asked or results:
        print(*draw(results[name], IMAGES), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

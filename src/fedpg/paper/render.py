"""Rendering of results for people: all labels, and tables. Nothing reads labels back."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from fedpg.paper.results import Result, Row, select

QUANTITIES = {
    "objective": "J",
    "best objective": "J (or return) at the best setting",
    "width": "decades of eta within 2 % of the best gain",
    "share of gain": "share of the best gain in J",
    "lead": "lead on the best other beta, mean return over the run",
    "final lead": "lead on the best other beta, return at the end",
    "trajectories to the goal": "trajectories to 95 (median)",
    "score": "score (interquartile mean)",
    "floor": "|grad J|^2 at rest / at the start",
    "gradient at rest": "|grad J|^2 at rest",
    "heterogeneity cost": "|grad J|^2 at rest, different / identical agents",
    "local updates": "share of seeds in which agents take local steps",
    "exponent in N": "p of |grad J|^2 ~ N^-p",
    "noise": "|grad J|^2 / at the start",
    "floats up": "floats sent per agent and round, in d",
    "floats down": "floats received per agent and round, in d",
    "slope in N": "slope of trajectories per agent in N",
    "slope in 1/eps": "slope of samples in 1/eps",
    "share left": "share of the clean return left under the worst attack",
}
"""What values of `Row.quantity` mean that do not explain themselves."""
FIELDS = {
    "task": "task", "method": "method", "attack": "attack", "heterogeneity": "heterogeneity", "N": "N", "K": "K", "beta": "beta",
    "eta": "eta", "ratio": "lambda / (eta K)", "eps": "eps", "noise": "noise", "round": "round", "x": "",
}  # fmt: skip
"""The fields that identify a row, in the order of columns, and their headings."""
OUTCOMES = {"holds": "holds", "unclear": "unclear", "fails": "does not hold"}


def heading(quantity: str) -> str:
    """A quantity for people."""
    return QUANTITIES.get(quantity, quantity)


def text(value: Any) -> str:
    """A field or a number for a table."""
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def identity(row: Row, field: str) -> str:
    """What a row's column `field` shows; the method's column names both methods of a comparison."""
    if field == "method" and row.against:
        return f"{row.method} {row.comparison or '-'} {row.against}"
    if field == "eta" and row.against_eta is not None:
        return f"{text(row.eta)}, {text(row.against_eta)}"
    return text(getattr(row, field))


def judgement(row: Row) -> str:
    """The verdict with its tolerance, and remarks."""
    said, verdict = [], row.verdict
    if verdict is not None and verdict.rule == "agrees":
        apart = abs(row.mean - verdict.bound) / verdict.unit
        said.append(f"{'agrees' if verdict.outcome == 'holds' else 'differs'} ({apart:.1f} of at most {verdict.tolerance:g} errors)")
    elif verdict is not None:
        tolerance = f" ± {verdict.tolerance:.3g}" if verdict.tolerance else ""
        said.append(f"{OUTCOMES[verdict.outcome]} ({verdict.rule} {verdict.bound:.4g}{tolerance})")
    if verdict is not None and verdict.paper is not None:
        said.append("the paper claims it" if verdict.paper else "the paper does not claim it")
    return "; ".join(said + list(row.flags))


def interval(row: Row) -> str:
    """The interval; empty if there is none."""
    low, high = ("never" if value is None else text(value) for value in (row.low, row.high))
    return "" if row.mean is not None and low == high == text(row.mean) else f"{low} to {high}"


def published(row: Row) -> str:
    """The paper's number and what it prints after +-."""
    return "" if row.published is None else text(row.published) + (f" ± {row.error:g}" if row.error else "")


def columns(rows: Sequence[Row]) -> dict[str, tuple[str, list[str]]]:
    """Heading and cells of every column by name: quantity, the identifying fields, published, mean, interval, n and verdict."""
    quantities = list(dict.fromkeys(row.quantity for row in rows))
    found = {"quantity": ("quantity", [heading(row.quantity) for row in rows])}
    found |= {name: (shown, [identity(row, name) for row in rows]) for name, shown in FIELDS.items()}
    found["published"] = ("published", [published(row) for row in rows])
    found["mean"] = (
        heading(quantities[0]) if len(quantities) == 1 else "ours",
        ["never" if r.mean is None else text(r.mean) for r in rows],
    )
    found["interval"] = ("95 % interval", [interval(row) for row in rows])
    found["n"] = ("n", [f"{row.n:,}" for row in rows])
    found["verdict"] = ("verdict", [judgement(row) for row in rows])
    return found


def table(rows: Sequence[Row], chosen: Sequence[str] = ()) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of the chosen columns; else of those that say something: fields and n only if they differ between the rows."""
    found = columns(rows)
    differ = [name for name, (_, cells) in found.items() if len(set(cells)) > 1]
    if not set(FIELDS) & set(differ) and rows and rows[0].method:
        differ.append("method")
    said = [name for name in ("published", "interval", "verdict") if any(found[name][1])]
    names = chosen or [name for name in found if name in differ or name == "mean" or name in said]
    return [found[name][0] for name in names], [list(line) for line in zip(*(found[name][1] for name in names), strict=True)]


def constants(rows: Sequence[Row]) -> str:
    """What all rows have in common, which `table` leaves out: "conflict, K = 8, n = 48"."""
    same = {name: cells[0] for name, (_, cells) in columns(rows).items() if name in (*FIELDS, "n") and len(set(cells)) == 1 and cells[0]}
    return ", ".join(
        value if name in ("task", "method", "attack") else f"{FIELDS.get(name, name)} = {value}" for name, value in same.items()
    )


def terminal(result: Result) -> Iterator[str | Table]:
    """What a terminal shows of a result: for every quantity its name and a table, then the notes."""
    yield f"{result.title} ({result.scale})"
    for quantity in dict.fromkeys(row.quantity for row in result.rows):
        rows = select(result.rows, quantity=quantity)
        yield f"\n{heading(quantity)}" + (f" ({same})" if (same := constants(rows)) else "")
        head, cells = table(rows)
        shown = Table()
        for name in head:
            shown.add_column("ours" if name == heading(quantity) else name, no_wrap=name != "verdict")
        for line in cells:
            shown.add_row(*line)
        yield shown
    yield from (f"- {note}" for note in result.notes)

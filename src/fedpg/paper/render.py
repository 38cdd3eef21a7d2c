"""Rendering of results for people: all labels, Markdown and terminal tables, and figures. Nothing reads labels back."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from fedpg.paper.results import Plot, Result, Row, select
from fedpg.report.figures import Line, Panel, panels

QUANTITIES = {
    "objective": "J",
    "best objective": "J (or return) at the best setting",
    "width": "decades of eta within 2 % of the best gain",
    "share of gain": "share of the best gain in J",
    "lead": "lead on the best other beta, mean return over the run",
    "final lead": "lead on the best other beta, return at the end",
    "trajectories to the goal": "trajectories to 95 (median; quartiles in place of the interval)",
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
    "eta": "eta", "ratio": "lambda / (eta K)", "eps": "eps", "round": "round", "x": "",
}  # fmt: skip
"""The fields that identify a row, in the order of columns, and their headings."""
OUTCOMES = {"holds": "holds", "unclear": "unclear", "fails": "does not hold"}
AXES = {"round": "round", "N": "agents N", "eps": "eps: mean over rounds of |grad J|^2"}


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


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells: the fields that differ between the rows, the numbers, and the verdict where there is one."""
    quantities = list(dict.fromkeys(row.quantity for row in rows))
    fields = [name for name in FIELDS if len({identity(row, name) for row in rows}) > 1]
    fields = fields or (["method"] if rows and rows[0].method else [])
    published, said = any(row.published is not None for row in rows), [judgement(row) for row in rows]
    head = ["quantity"] * (len(quantities) > 1) + [FIELDS[name] for name in fields] + ["published"] * published
    head += [heading(quantities[0]) if len(quantities) == 1 else "ours", "95 % interval", "n"] + ["verdict"] * any(said)
    cells = []
    for row, words in zip(rows, said, strict=True):
        paper = "" if row.published is None else text(row.published) + (f" ± {row.error:g}" if row.error else "")
        ours, low, high = ("never" if value is None else text(value) for value in (row.mean, row.low, row.high))
        line = [heading(row.quantity)] * (len(quantities) > 1) + [identity(row, name) for name in fields] + [paper] * published
        cells.append([*line, ours, f"{low} to {high}", f"{row.n:,}"] + [words] * any(said))
    return head, cells


def terminal(result: Result) -> Iterator[str | Table]:
    """What a terminal shows of a result: for every quantity its name and a table, then the notes."""
    yield f"{result.title} ({result.scale})"
    for quantity in dict.fromkeys(row.quantity for row in result.rows):
        yield f"\n{heading(quantity)}"
        head, cells = table(select(result.rows, quantity=quantity))
        shown = Table()
        for name in head:
            shown.add_column("ours" if name == heading(quantity) else name, no_wrap=name != "verdict")
        for line in cells:
            shown.add_row(*line)
        yield shown
    yield from (f"- {note}" for note in result.notes)


def draw(result: Result, path: Path) -> Path:
    """Draws the figure of a result; returns its path."""
    rows = [*result.rows, *result.points]
    return panels([_panel(plot, select(rows, quantity=plot.quantity, **plot.where)) for plot in result.plots], path, title=result.title)


def _panel(plot: Plot, rows: Iterable[Row]) -> Panel:
    series: dict[str, list[Row]] = {}
    for row in rows:
        if row.mean is not None and getattr(row, plot.x) is not None:
            named = [
                identity(row, name) if name in ("method", "task") else f"{FIELDS[name]} = {identity(row, name)}" for name in plot.series
            ]
            series.setdefault(", ".join(each for each in named if each), []).append(row)
    axes = {"y_label": heading(plot.quantity), "x_log": plot.x_log, "y_log": plot.y_log}
    if plot.x == "method":
        order = sorted({row.method: row.mean for own in series.values() for row in reversed(own)}.items(), key=lambda pair: -pair[1])
        places = {name: at for at, (name, _) in enumerate(order)}
        lines = [
            _line(label, [places[row.method] + 0.8 / len(series) * at for row in own], own, "o")
            for at, (label, own) in enumerate(series.items())
        ]
        return Panel(plot.title, "", lines=lines, places=list(places), **axes)
    lines = []
    for at, (label, own) in enumerate(series.items()):
        own = sorted(own, key=lambda row: getattr(row, plot.x))
        x, y = (np.array([getattr(row, name) for row in own], float) for name in (plot.x, "mean"))
        marks = "o" if plot.fit or len(own) < 12 else ""
        lines.append(_line(label, x, own, marks if plot.fit else marks + ("-", "--", "-.")[at % 3]))
        if plot.fit and len(own) > 1:  # matplotlib leaves labels with a leading underscore out of the legend
            lines.append(Line("_fit", x, np.exp(np.polyval(np.polyfit(np.log(x), np.log(y), 1), np.log(x))), style=":"))
        if plot.slope is not None and at == len(series) - 1:
            lines.append(Line(f"slope {plot.slope:g}", x, 0.5 * y[0] * (x / x[0]) ** plot.slope, style="--"))
    return Panel(plot.title, plot.x_label or AXES.get(plot.x, FIELDS[plot.x]), lines=lines, **axes)


def _line(label: str, x: Any, rows: Sequence[Row], style: str) -> Line:
    mean, low, high = ([np.nan if value is None else value for value in values] for values in
                       ([row.mean for row in rows], [row.low for row in rows], [row.high for row in rows]))  # fmt: skip
    certain = all(one == other for one, other in zip(low, high, strict=True))
    return Line(label or heading(rows[0].quantity), x, mean, None if certain else low, None if certain else high, style)

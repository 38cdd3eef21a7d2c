"""Drawing of an experiment's figures from its rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpg import paper
from fedpg.paper.render import FIELDS, heading, identity, text
from fedpg.paper.results import Figure, Plot, Result, Row, select
from fedpg.report.figures import Heat, Line, Panel, panels

AXES = {"round": "round", "N": "agents N", "eps": "eps: mean over rounds of |grad J|^2"}


def draw(result: Result, folder: Path, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Draws the figures of a result as NAME.KIND and NAME-SUFFIX.KIND; returns the path of the first kind of each."""
    return [draw_figure(figure, result.name, folder, kinds) for figure in paper.figures(result)]


def draw_figure(figure: Figure, name: str, folder: Path, kinds: Sequence[str]) -> Path:
    """Draws one figure; returns the path of the first kind."""
    name = f"{name}-{figure.suffix}" if figure.suffix else name
    drawn = [panel(plot, figure.rows) for plot in figure.plots]
    return panels(drawn, *(folder / f"{name}.{kind}" for kind in kinds), columns=figure.columns, height=figure.height)


def panel(plot: Plot, rows: Sequence[Row]) -> Panel | Heat:
    """One panel."""
    wanted = [plot.quantity] if isinstance(plot.quantity, str) else list(plot.quantity)
    own = select(rows, quantity=wanted, **plot.where)
    drawn = heat(plot, own) if plot.heat else ranking(plot, own, wanted) if plot.names else curves(plot, own)
    return (
        drawn
        if isinstance(drawn, Heat)
        else drawn._replace(**{name: getattr(drawn, name).replace("^2", "²") for name in ("x_label", "y_label")})
    )


def label(row: Row, fields: Sequence[str]) -> str:
    """What tells a row from the others: names as they are, numbers after the name of their field."""
    named = [identity(row, name) if isinstance(getattr(row, name), str) else f"{FIELDS[name]} = {identity(row, name)}" for name in fields]
    return ", ".join(each for each in named if each) or heading(row.quantity)


def numbers(rows: Sequence[Row]) -> tuple[Any, Any, Any]:
    """Means and intervals, (T,) each, infinite where a row has none; no intervals if all are certain."""
    mean, low, high = (np.array([np.inf if v is None else v for v in values], float) for values in
                       ([r.mean for r in rows], [r.low for r in rows], [r.high for r in rows]))  # fmt: skip
    return (mean, None, None) if np.array_equal(low, high) else (mean, low, high)


def curves(plot: Plot, rows: Sequence[Row]) -> Panel:
    """Lines over a number."""
    series: dict[str, list[Row]] = {}
    for row in rows:
        if row.mean is not None and getattr(row, plot.x) is not None:
            series.setdefault(label(row, plot.series), []).append(row)
    lines = []
    for at, (name, found) in enumerate(series.items()):
        own = sorted(found, key=lambda row: getattr(row, plot.x))
        x, (mean, low, high) = np.array([getattr(row, plot.x) for row in own], float), numbers(own)
        lines.append(Line(name, x, mean, low, high, "o" if plot.fit or plot.points else ""))
        if plot.fit and len(own) > 1:
            lines.append(Line("_fit", x, np.exp(np.polyval(np.polyfit(np.log(x), np.log(mean), 1), np.log(x))), style="-"))
        if plot.slope is not None and at == len(series) - 1:
            lines.append(Line(f"promised slope, {plot.slope:g}", x, 0.5 * mean[0] * (x / x[0]) ** plot.slope, style="--"))
    return Panel(plot.title, plot.x_label or AXES.get(plot.x, FIELDS[plot.x]), plot.y_label or heading(str(plot.quantity)), lines,
                 plot.x_scale, plot.y_scale, guides=plot.guides)  # fmt: skip


def ranking(plot: Plot, rows: Sequence[Row], quantities: Sequence[str]) -> Panel:
    """One row of the panel for each name: what methods and their markers mean stands beside them and in the legend."""
    worth = {id(row): np.inf if row.mean is None else row.mean for row in rows}
    best = sorted(rows, key=lambda row: worth[id(row)] if plot.lowest_first else -worth[id(row)])
    names = plot.order or tuple(dict.fromkeys(identity(row, plot.names) for row in best))

    def kind(row: Row) -> str:
        return heading(row.quantity) if len(quantities) > 1 else label(row, plot.series)

    kinds = list(dict.fromkeys(map(kind, rows))) if plot.series or len(quantities) > 1 else []
    lines = []
    for row in rows:
        if identity(row, plot.names) not in names:
            continue
        at = kinds.index(kind(row)) if len(kinds) > 1 else 0
        shift = 0.5 * (at - (len(kinds) - 1) / 2) / len(kinds) if len(kinds) > 1 else 0.0
        (mean, low, high), place = numbers([row]), [names.index(identity(row, plot.names)) + shift]
        lines.append(Line(row.method, mean, place, low, high, "o", plot.markers[at] if len(kinds) > 1 else ""))
        if row.published is not None:
            error = row.error or 0.0
            lines.append(Line("published", [row.published], place, [row.published - error], [row.published + error], "o"))
    keys = [(each, plot.markers[at]) for at, each in enumerate(kinds)] if len(kinds) > 1 else []
    shown = plot.x_label or heading(quantities[0])
    down = "" if plot.names in ("method", "task") else FIELDS[plot.names]
    return Panel(plot.title, shown, down, lines, plot.x_scale, names=names, guides=plot.guides, keys=keys)


def heat(plot: Plot, rows: Sequence[Row]) -> Heat:
    """Means by `names` and `x`."""
    found = {(identity(row, plot.names), text(getattr(row, plot.x))): row.mean for row in rows}
    down, across = (tuple(dict.fromkeys(place[i] for place in found)) for i in (0, 1))
    values = np.array([[np.nan if found.get((r, c)) is None else found[r, c] for c in across] for r in down], float)
    return Heat(plot.title, values, down, across, plot.x_label or heading(str(plot.quantity)))

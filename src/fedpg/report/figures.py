"""Pictures, drawn with matplotlib (the extra `plot`)."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpg.errors import UserError


class Line(NamedTuple):
    """One line of a panel.

    Attributes:
        label: what to call it.
        x, y: where it goes, (T,) each.
        low, high: its 95 % interval, (T,); None without.
        style: matplotlib's: "-", "--", ":", "o" for points only, "o-" for both.
    """

    label: str
    x: Any
    y: Any
    low: Any = None
    high: Any = None
    style: str = "-"


class Panel(NamedTuple):
    """One set of axes; with `places`, names instead of numbers 0, 1, 2, ... along x, and intervals as bars."""

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    x_log: bool = False
    y_log: bool = False
    places: Any = None


def panels(drawn: list[Panel], path: Path, *, title: str, columns: int = 2) -> Path:
    """Panels side by side, lines of the same label in the same colour everywhere. Returns where they were saved."""
    pyplot = _pyplot()
    columns = min(columns, len(drawn))
    shape = -(-len(drawn) // columns), columns
    figure, grid = pyplot.subplots(*shape, figsize=(5.6 * columns, 4.0 * shape[0]), layout="constrained", squeeze=False)
    labels = list(dict.fromkeys(line.label for panel in drawn for line in panel.lines if not line.label.startswith("_")))
    for axes, panel in zip(grid.flat, drawn, strict=False):
        _draw_panel(axes, panel, labels)
    for axes in grid.flat[len(drawn) :]:
        axes.set_visible(False)
    figure.suptitle(title)
    return _saved(figure, path)


def _draw_panel(axes: Any, panel: Panel, labels: list[str]) -> None:
    """Draws a panel; `labels` fixes the colours."""
    for line in panel.lines:
        if line.label in labels:  # else it belongs to the line before it
            color = f"C{labels.index(line.label) % 10}"
        x, y, low, high = (np.array(v, float) if v is not None else None for v in line[1:5])
        axes.plot(x, y, line.style, label=line.label, color=color, linewidth=1.8, markersize=4)
        if low is not None and panel.places:
            axes.vlines(x, low, high, color=color, alpha=0.5, linewidth=3)
        elif low is not None:
            axes.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)
    if panel.places:
        axes.set_xticks(range(len(panel.places)), panel.places, rotation=60, ha="right", fontsize=7)
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    if panel.x_log:
        axes.set_xscale("log")
        _plain_numbers(axes.xaxis)
    if panel.y_log:
        axes.set_yscale("log")
        _plain_numbers(axes.yaxis)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)


def heat_map(values: np.ndarray, rows: list[str], columns: list[str], path: Path, *, title: str) -> Path:
    """A table of numbers as colours, with the numbers in it. Returns where it was saved."""
    figure, axes = _pyplot().subplots(figsize=(2.4 + 0.62 * len(columns), 1.5 + 0.34 * len(rows)), layout="constrained")
    _draw_heat_map(figure, axes, values, rows, columns, title, ())
    return _saved(figure, path)


def beside_heat_map(
    panel: Panel, values: np.ndarray, rows: list[str], columns: list[str], path: Path, *, title: str, groups: tuple[int, ...] = ()
) -> Path:
    """A panel and a heat map side by side; white lines before the columns `groups`. Returns where they were saved."""
    size = (6.5 + 0.5 * len(columns), max(4.2, 1.8 + 0.3 * len(rows)))
    figure, (left, right) = _pyplot().subplots(1, 2, figsize=size, layout="constrained", width_ratios=(4.0, 0.5 * len(columns)))
    _draw_panel(left, panel, [line.label for line in panel.lines])
    _draw_heat_map(figure, right, values, rows, columns, title, groups)
    return _saved(figure, path)


def _draw_heat_map(
    figure: Any, axes: Any, values: np.ndarray, rows: list[str], columns: list[str], title: str, groups: tuple[int, ...]
) -> None:
    shown = axes.imshow(values, cmap="cividis", aspect="auto")  # colour-blind people see the same order
    middle = (np.nanmin(values) + np.nanmax(values)) / 2.0
    for (r, c), value in np.ndenumerate(values):
        axes.text(c, r, f"{value:.0f}", ha="center", va="center", fontsize=7, color="black" if value > middle else "white")
    for place in groups:
        axes.axvline(place - 0.5, color="white", linewidth=3)
    axes.set_xticks(range(len(columns)), columns, rotation=50, ha="right", fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.set_title(title, fontsize=10)
    figure.colorbar(shown, ax=axes, label="return")


def _plain_numbers(axis: Any) -> None:
    """Labels of a logarithmic axis, few enough to be read: 1, 2, 5 within a decade, powers of ten beyond two."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = np.log10(axis.get_view_interval())
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high - low < 2.0 else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, at: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _pyplot() -> Any:
    """matplotlib.pyplot, drawing into files."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("pictures need matplotlib: pip install 'fedpg[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _saved(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    _pyplot().close(figure)
    return path

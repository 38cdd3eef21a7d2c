"""Pictures, drawn with matplotlib (the extra `plot`)."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpg.errors import UserError
from fedpg.report.style import DASHES, GREY, PALETTE, RC, WIDTH, Style, styles

DPI, FEW = 200, 16
"""Of PNG files; and lines of at most so many points have markers."""


class Line(NamedTuple):
    """One line of a panel.

    Attributes:
        label: what to call it; it decides the style (see `style.styles`). With a leading underscore it belongs to the line before it.
        x, y: where it goes, (T,) each.
        low, high: its 95 % interval, (T,); None without. It is an interval of x in a panel with names, of y elsewhere.
        style: "" for the style of the label, "o" for points only, or matplotlib's "--".
        marker: another marker than that of the label.
    """

    label: str
    x: Any
    y: Any
    low: Any = None
    high: Any = None
    style: str = ""
    marker: str = ""


class Panel(NamedTuple):
    """One set of axes.

    Attributes:
        names: instead of numbers 0, 1, 2, ... along y, from the top; the values are then along x.
        guides: values to mark with a dashed line; across y, or along x in a panel with names.
        keys: texts and markers that the legend adds in grey.
        x_scale, y_scale: linear, log, or "symlog 0.1", which is linear up to 0.1.
    """

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    x_scale: str = "linear"
    y_scale: str = "linear"
    names: Sequence[str] = ()
    guides: Sequence[float] = ()
    keys: Sequence[tuple[str, str]] = ()


class Heat(NamedTuple):
    """A table of numbers (rows, columns) as colours, with the numbers in it; white lines before the columns `groups`."""

    title: str
    values: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    label: str = "return"
    decimals: int = 0
    groups: tuple[int, ...] = ()


def panels(
    drawn: Sequence[Panel | Heat],
    *paths: Path,
    title: str = "",
    columns: int = 2,
    height: float = 2.7,
    width: float = WIDTH,
) -> Path:
    """Panels side by side with one legend for all of them, saved under every path, whose suffix is the format. Returns the first.

    Args:
        columns: of panels; if all panels of a figure have the same names, only the first of a row shows them.
        height, width: of one row, in inches.
    """
    pyplot = _pyplot()
    columns = min(columns, len(drawn))
    shape, named = (-(-len(drawn) // columns), columns), {tuple(panel.names) for panel in drawn if isinstance(panel, Panel)}
    with pyplot.rc_context(RC):
        figure, grid = pyplot.subplots(*shape, figsize=(width, height * shape[0] + 0.5), layout="constrained", squeeze=False,
                                       sharey=columns > 1 and len(named) == 1 and named != {()})  # fmt: skip
        looks = styles([line.label for panel in drawn if isinstance(panel, Panel) for line in panel.lines if line.label[:1] != "_"])
        for axes, panel in zip(grid.flat, drawn, strict=False):
            _draw_heat(axes, panel) if isinstance(panel, Heat) else _draw_panel(axes, panel, looks)
        for axes in grid.flat[len(drawn) :]:
            axes.set_visible(False)
        if title:
            figure.suptitle(title, fontsize=10, x=0.01, ha="left")
        _legend(figure, drawn, looks)
        return _saved(figure, paths)


def _draw_panel(axes: Any, panel: Panel, looks: dict[str, Style]) -> None:
    look = Style(GREY, "o")
    for at, line in enumerate(panel.lines):
        look = looks.get(line.label, look)
        thick = 1.0 + 0.6 * (1.0 - (at + 1) / len(panel.lines))  # a line below one that coincides with it stays visible
        x, y, low, high = (np.array(v, float) if v is not None else None for v in line[1:5])
        color, marker = PALETTE[look.colour], line.marker or (look.marker if line.style == "o" or len(x) <= FEW else "")
        style = "none" if line.style == "o" else line.style or DASHES[look.dash]
        if panel.names:
            _draw_row(axes, x, y, low, high, color, marker)
            continue
        axes.plot(x, y, linestyle=style, marker="" if line.style not in ("", "o") else marker, color=color,
                  linewidth=thick * RC["lines.linewidth"], markersize=thick * RC["lines.markersize"])  # fmt: skip
        if low is not None and line.style == "o":
            axes.vlines(x, low, high, color=color, linewidth=1.2)
        elif low is not None:
            axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    for which, scale in (("x", panel.x_scale), ("y", panel.y_scale)):
        _scale(axes, which, scale)
    _whole(axes, panel)
    for value in panel.guides:
        (axes.axvline if panel.names else axes.axhline)(value, color="#444444", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    if panel.names:
        if any(not np.isfinite(line.x).all() or (line.high is not None and not np.isfinite(line.high).all()) for line in panel.lines):
            left, right = axes.get_xlim()
            axes.set_xlim(left, right + 0.12 * (right - left))  # room for what never ends
        axes.set_yticks(range(len(panel.names)), panel.names)
        axes.set_ylim(len(panel.names) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)


def _draw_row(axes: Any, x: Any, y: Any, low: Any, high: Any, color: str, marker: str) -> None:
    """Points of a panel with names, and their intervals; what is infinite is an arrow at the right edge."""
    finite = np.isfinite(x)
    axes.plot(x[finite], y[finite], marker, color=color)
    for place, end in zip(y[~finite], x[~finite], strict=True):
        if end > 0:
            axes.plot(0.985, place, ">", color=color, markerfacecolor="white", transform=axes.get_yaxis_transform(), clip_on=False)
    if low is None:
        return
    for at, (left, right) in enumerate(zip(low, high, strict=True)):
        if np.isfinite([left, right]).all():
            axes.hlines(y[at], left, right, color=color, linewidth=1.6)
        elif np.isfinite(left):
            axes.annotate("", (0.985, y[at]), (left, y[at]), xycoords=axes.get_yaxis_transform(), textcoords="data",
                          arrowprops={"arrowstyle": "->", "color": color, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0})  # fmt: skip


def _scale(axes: Any, which: str, scale: str) -> None:
    """Sets the scale of an axis, and labels that are few enough to be read: 1, 2, 5 within a decade, powers of ten beyond two."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    kind, _, linear = scale.partition(" ")
    if kind == "linear":
        return
    axis, given = getattr(axes, f"{which}axis"), {"linthresh": float(linear)} if linear else {}
    getattr(axes, f"set_{which}scale")(kind, **given)
    if kind == "log":
        low, high = np.log10(axis.get_view_interval())
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high - low < 2.0 else (1.0,), numticks=6 if high - low < 20.0 else 3))
    else:
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, at: f"{value:g}".replace("-", "\N{MINUS SIGN}")))
    axis.set_minor_formatter(NullFormatter())


def _whole(axes: Any, panel: Panel) -> None:
    """Labels the values along x themselves where the axis is not linear and they are few whole numbers, such as agents N."""
    values = np.unique(np.concatenate([np.ravel(line.x) for line in panel.lines])) if panel.lines else np.zeros(0)
    if panel.x_scale != "linear" and not panel.names and 1 < len(values) <= 8 and np.array_equal(values, np.round(values)):
        axes.set_xticks(values)
        axes.set_xticks([], minor=True)


def _legend(figure: Any, drawn: Sequence[Panel | Heat], looks: dict[str, Style]) -> None:
    """One legend below all panels: the lines that no name on an axis explains."""
    from matplotlib.lines import Line2D

    handles: dict[str, Any] = {}
    for panel in drawn:
        if isinstance(panel, Heat):
            continue
        for line in panel.lines:
            look = looks.get(line.label)
            if look is not None and not line.marker and line.label not in (*panel.names, *handles):
                color, dash = PALETTE[look.colour], "none" if panel.names or line.style == "o" else line.style or DASHES[look.dash]
                marker = "" if line.style not in ("", "o") else look.marker
                handles[line.label] = Line2D([], [], color=color, marker=marker, linestyle=dash)
        for text, marker in panel.keys:
            handles[text] = Line2D([], [], color=PALETTE[GREY], marker=marker, linestyle="none")
    if len(handles) > 1:
        ncols = next(n for n in (7, 6, 5, 4, 3, 2) if _wide(list(handles), n) < 125 or n == 2)
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=ncols)


def _wide(labels: list[str], columns: int) -> int:
    """Letters that a legend of so many columns takes; it is filled column by column."""
    rows = -(-len(labels) // columns)
    return sum(max(map(len, labels[at : at + rows])) + 7 for at in range(0, len(labels), rows))


def heat_map(values: np.ndarray, rows: list[str], columns: list[str], path: Path, *, title: str) -> Path:
    """One `Heat`. Returns where it was saved."""
    return panels([Heat(title, values, rows, columns)], path, columns=1, height=0.9 + 0.26 * len(rows))


def above_heat_map(panel: Panel, heat: Heat, path: Path) -> Path:
    """A panel and, below it, a heat map, whose numbers need the whole width. Returns where they were saved."""
    return panels([panel, heat], path, columns=1, height=max(WIDTH / 3, 1.2 + 0.19 * len(heat.rows)))


def _draw_heat(axes: Any, heat: Heat) -> None:
    shown = axes.imshow(heat.values, cmap="cividis", aspect="auto")  # colour-blind people see the same order
    middle = (np.nanmin(heat.values) + np.nanmax(heat.values)) / 2.0
    for (r, c), value in np.ndenumerate(heat.values):
        color = "black" if value > middle else "white"
        axes.text(c, r, f"{value:.{heat.decimals}f}", ha="center", va="center", fontsize=8, color=color)
    for place in heat.groups:
        axes.axvline(place - 0.5, color="white", linewidth=3)
    axes.set_xticks(range(len(heat.columns)), heat.columns, rotation=35, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(heat.rows)), heat.rows)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_title(heat.title)
    axes.figure.colorbar(shown, ax=axes, label=heat.label, pad=0.01)


def _pyplot() -> Any:
    """matplotlib.pyplot, drawing into files."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("pictures need matplotlib: pip install 'fedpg[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _saved(figure: Any, paths: Sequence[Path]) -> Path:
    """Saves a figure; PNG files without a heat map have a palette, which makes them a third of the size."""
    from PIL import Image

    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # once is enough for all files
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".png":
            figure.savefig(whole := io.BytesIO(), dpi=DPI, format="png")
            image = Image.open(whole).convert("RGB")
            gradient = any(axes.images for axes in figure.axes)
            (image if gradient else image.quantize(128, dither=Image.Dither.NONE)).save(path, optimize=True)
        else:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    _pyplot().close(figure)
    return paths[0]

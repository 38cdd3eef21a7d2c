"""Pictures, drawn with matplotlib (the extra `plot`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpg.errors import UserError
from fedpg.report.stats import estimate


class Curve(NamedTuple):
    """One line of a learning-curve picture.

    Attributes:
        label: what to call it.
        x: where it was evaluated, (T,).
        mean: mean over agents, (seeds, T).
        worst: the worst agent, (seeds, T).
    """

    label: str
    x: np.ndarray
    mean: np.ndarray
    worst: np.ndarray


def curve(label: str, rows: list[dict[str, Any]], x: str = "round") -> Curve:
    """The returns in a run's metrics; seeds that failed are left out."""
    lasting = [i for i, value in enumerate(rows[-1]["return_per_seed"]) if value is not None]
    table = {name: np.array([[row[f"{name}_per_seed"][i] for row in rows] for i in lasting]) for name in ("return", "return_worst")}
    return Curve(label, np.array([row[x] for row in rows]), table["return"], table["return_worst"])


def learning_curves(curves: list[Curve], path: Path, *, title: str, x_label: str = "round") -> Path:
    """Mean and 95 % interval over seeds, one line per algorithm, its worst agent dashed. Returns where it was saved."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("pictures need matplotlib: pip install 'fedpg[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.8), layout="constrained")
    for one in curves:
        mean, worst = estimate(one.mean), estimate(one.worst)
        (line,) = axes.plot(one.x, mean.mean, label=one.label, linewidth=2)
        axes.fill_between(one.x, mean.low, mean.high, color=line.get_color(), alpha=0.2, linewidth=0)
        axes.plot(one.x, worst.mean, color=line.get_color(), linestyle="--", linewidth=1.2)
    axes.plot([], [], color="grey", linestyle="--", linewidth=1.2, label="worst agent")
    axes.set(title=title, xlabel=x_label, ylabel="return")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path

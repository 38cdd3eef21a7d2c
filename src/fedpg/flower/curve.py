"""The learning curve of a status, as an inline SVG: shapes only, so that it can be stretched; labels are text around it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fedpg.flower.snapshot import Point
from fedpg.flower.wording import score

WIDTH, HEIGHT = 1000.0, 100.0


def ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers, evenly spaced, that enclose [low, high].

    >>> ticks(9.0, 41.0)
    [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    """
    if high - low <= max(1e-9 * max(abs(low), abs(high)), 1e-200):
        low, high = low - max(abs(low), 1.0) / 10, high + max(abs(high), 1.0) / 10
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [float(f"{number * step:.12g}") + 0.0 for number in range(first, last + 1)]  # + 0.0: no minus before a zero


def curve(points: Sequence[Point]) -> str:
    """HTML of the curve of `points`; empty if nobody knows a return."""
    known = [point for point in points if point.total_return is not None]
    if not known:
        return ""
    values = [value for point in known for value in (point.total_return, point.return_worst) if value is not None]
    levels, first, last = ticks(min(values), max(values)), known[0].round, known[-1].round
    low, span = levels[0], levels[-1] - levels[0]

    def line(value_of: Callable[[Point], float | None]) -> list[str]:
        placed = [(point.round, value_of(point)) for point in known]
        return [
            f"{WIDTH * (round - first) / max(last - first, 1):.1f} {HEIGHT * (1 - (value - low) / span):.2f}"
            for round, value in placed
            if value is not None
        ]

    mean, worst = line(lambda point: point.total_return), line(lambda point: point.return_worst)
    grid = "".join(f"M0 {HEIGHT * i / (len(levels) - 1):.2f}H{WIDTH:g}" for i in range(len(levels)))
    paths = [f'<path class="grid" d="{grid}"/>']
    paths += [f'<path class="worst" d="M{"L".join(worst)}"/>'] if worst else []
    paths += [f'<path class="mean" d="M{"L".join(mean)}"/>', f'<path class="last" d="M{mean[-1]}h.01"/>']
    labels = "".join(f"<span>{level:.6g}</span>" for level in reversed(levels))
    along = f"<span>round {first}</span><span>round {last}</span>" if last > first else f"<span>round {first}</span>"
    title = f"Return after every evaluated round: {score(known[0].total_return)} at first, {score(known[-1].total_return)} now"
    svg = f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio="none" role="img" aria-label="{title}">{"".join(paths)}</svg>'
    key = "".join(
        f'<span><svg viewBox="0 0 26 8"><path class="{kind}" d="M0 4H26"/></svg>{text}</span>'
        for kind, text in (("mean", "mean of the agents"), ("worst", "worst agent"))
    )
    return f'<div class="plot"><div class="up">{labels}</div>{svg}<div class="along">{along}</div></div><p class="key">{key}</p>'

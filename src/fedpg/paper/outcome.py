"""What an experiment found: numbers beside the published ones, pictures, and what must be said about them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpg.report.figures import Line, Panel
from fedpg.report.stats import Estimate
from fedpg.runs import manifest

Tell = Callable[[str, float], None]
"""tell(what, share): what is being done now, and the share of the experiment that is done, 0 to 1."""


class Row(NamedTuple):
    """One measured number.

    Attributes:
        what: which.
        ours: the mean, or the fitted value.
        low, high: its 95 % interval.
        n: seeds (or points of a fit) behind it.
        published: the paper's number; None where it has none.
        published_error: what the paper prints behind +-.
        verdict: one short phrase: agrees, differs by 4.2 se, holds, does not hold, ...
    """

    what: str
    ours: float
    low: float
    high: float
    n: int
    published: float | None = None
    published_error: float | None = None
    verdict: str = ""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Everything one experiment has to say."""

    name: str
    """As `fedpg reproduce` calls it."""
    title: str
    """One line for people."""
    scale: str
    """smoke or full."""
    settings: dict[str, Any]
    """What was run: enough to judge and to repeat it."""
    rows: list[Row]
    """The table."""
    notes: list[str]
    """What a reader must know: what does not reproduce and why, what was left out at this scale."""
    panels: list[Panel]
    """The picture."""


def row(what: str, found: Estimate, **more: Any) -> Row:
    """A row from a mean over seeds."""
    return Row(what, float(found.mean), float(found.low), float(found.high), found.seeds, **more)


def standard_errors(ours: float, published: float, error: float) -> str:
    """The verdict on one published number with its printed +-.

    >>> standard_errors(7.90, 8.00, 0.06), standard_errors(7.70, 8.00, 0.06)
    ('agrees (1.7 se)', 'differs (5.0 se)')
    """
    apart = abs(ours - published) / error
    return f"{'agrees' if apart <= 3.0 else 'differs'} ({apart:.1f} se)"


def save(outcome: Outcome, folder: Path) -> Path:
    """Writes NAME.json; returns where."""
    path, made = folder / f"{outcome.name}.json", manifest.collect({})
    folder.mkdir(parents=True, exist_ok=True)
    fields = dataclasses.asdict(outcome) | {
        "rows": [row._asdict() for row in outcome.rows],
        "panels": [panel._asdict() | {"lines": [line._asdict() for line in panel.lines]} for panel in outcome.panels],
        "made_with": {key: made[key] for key in ("created", "command", "python", "packages", "devices")},
    }
    path.write_text(json.dumps(_plain(fields), indent=1) + "\n")
    return path


def load(path: Path) -> Outcome:
    """What `save` wrote."""
    fields = json.loads(path.read_text())
    never = {name: float("inf") for name in ("ours", "low", "high")}
    fields["rows"] = [Row(**never | {k: v for k, v in row.items() if v is not None}) for row in fields["rows"]]
    fields["panels"] = [Panel(**panel | {"lines": [Line(**line) for line in panel["lines"]]}) for panel in fields["panels"]]
    fields.pop("made_with")
    return Outcome(**fields)


def _plain(value: Any) -> Any:
    """For JSON: plain numbers with no more digits than a picture shows; one that is not finite is null."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(each) for each in value]
    if isinstance(value, (float, np.floating)) or (hasattr(value, "dtype") and np.issubdtype(value.dtype, np.floating)):
        return float(f"{float(value):.6g}") if np.isfinite(value) else None
    return value.item() if hasattr(value, "dtype") else value

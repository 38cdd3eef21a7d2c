"""The picture of `fedpg bench`: rates beside those of peers, and the rate over lanes."""

from pathlib import Path
from typing import Any

from fedpg.report.figures import Line, Panel, panels

OVER_LANES = "over lanes"
"""What the name of a group ends with whose rows differ in their lanes."""


def draw(found: dict[str, Any], path: Path) -> Path:
    """Draws what `fedpg bench` found; rows without a rate are left out."""
    rows = [row for row in found["rows"] if row.get("rate")]
    drawn: list[Any] = []
    compared = [row for row in rows if not row["group"].endswith(OVER_LANES)]
    if compared:
        names = [f"{row['group']}: {row['name']}" for row in compared]
        lines = []
        for label, mine in (("fedpg", True), ("peers", False)):
            chosen = [(row["rate"], i) for i, row in enumerate(compared) if row["name"].startswith("fedpg") == mine]
            if chosen:
                x, y = zip(*chosen, strict=True)
                lines.append(Line(label, x, y, style="o"))
        drawn.append(Panel("rates", "a second", "", lines, x_scale="log", names=names))
    groups = dict.fromkeys(row["group"] for row in rows if row["group"].endswith(OVER_LANES))
    lines = []
    for group in groups:
        mine = [row for row in rows if row["group"] == group]
        lines.append(Line(group.removesuffix(OVER_LANES).strip(", "), [row["lanes"] for row in mine], [row["rate"] for row in mine]))
    if lines:
        drawn.append(Panel("over lanes", "lanes", "environment steps a second", lines, x_scale="log", y_scale="log"))
    return panels(drawn, path, title=", ".join(found["machine"]["devices"]), columns=1)

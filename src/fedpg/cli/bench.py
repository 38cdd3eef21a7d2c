"""`fedpg bench SUBJECT`: how fast this machine trains, beside named peers measured in the same run."""

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Column, Table

from fedpg import bench as benchmarks
from fedpg.cli.parse import console, parse
from fedpg.errors import choose

WHAT = "\n".join(f"    {name:13}  {does}" for name, does in {**benchmarks.SUBJECTS, "all": "every one of them"}.items())


@dataclasses.dataclass(frozen=True)
class BenchOptions(benchmarks.Options):
    """Measure whole training rounds, compilation and memory on this machine, and peers in the same run.

    Example: fedpg bench mujoco --env halfcheetah --lanes 64 --json
    """

    subject: Annotated[str, tyro.conf.Positional] = "all"
    """What to measure, or all."""
    json: bool = False
    """Print one JSON object instead of a table."""
    out: str | None = None
    """Folder for bench.json and bench.png."""


BenchOptions.__doc__ = f"{inspect.cleandoc(BenchOptions.__doc__ or '')}\n\nSubjects:\n{WHAT}"


def bench(options: BenchOptions) -> dict[str, Any]:
    """What was measured, as plain data: the machine, the options, and `rows`, see `fedpg.bench`."""
    import jax

    from fedpg.runs.folder import manifest

    choose("subject", options.subject, (*benchmarks.SUBJECTS, "all"))
    names = benchmarks.SUBJECTS if options.subject == "all" else [options.subject]
    rows = [row for name in names for row in benchmarks.measure(name, options)]
    rows = [row | {key: float(f"{row[key]:.4g}") for key in ("rate", "first_seconds") if key in row} for row in rows]
    about = manifest() | {"devices": [device.device_kind for device in jax.devices()]}
    return {"machine": about, "options": dataclasses.asdict(options), "rows": benchmarks.with_ratios(rows)}


def table(found: dict[str, Any]) -> Table:
    """The rows for the screen."""
    heads = ("lanes", "a second", "times the peer", "first result, s", "after a round, s", "slope", "peak, MB")
    right = [Column(head, justify="right") for head in heads]
    shown = Table("subject", "what", "who", *right, title=f"on {', '.join(found['machine']['devices'])}", title_justify="left")
    for row in found["rows"]:
        rate = f"{row['rate']:,.4g} {row['unit']}" if row.get("rate") else ""
        ratio = ", ".join(f"{value:,.3g} ({name})" for name, value in row.get("ratio", {}).items())
        peak = f"{row['peak_bytes'] / 1e6:,.0f}" if "peak_bytes" in row else ""
        numbers = [str(row.get(key, "")) for key in ("first_seconds", "round_seconds", "slope")]
        shown.add_row(row["subject"], row["group"], row["name"], str(row.get("lanes", "")), rate, ratio, *numbers, peak)
    return shown


def main(argv: list[str]) -> int:
    """Measures and prints; returns the exit code."""
    options = parse(BenchOptions, argv, "fedpg bench")
    from fedpg.machine import use_all_cores

    use_all_cores()
    found = bench(options)
    if options.out:
        from fedpg.bench.draw import draw

        folder = Path(options.out)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "bench.json").write_text(json.dumps(found, indent=1) + "\n")
        draw(found, folder / "bench.png")
    if options.json:
        print(json.dumps(found))
    else:
        console().print(table(found))
    return 0

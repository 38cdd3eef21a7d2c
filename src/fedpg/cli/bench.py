"""`fedpg bench`: speed, as ratios against named peers measured in the same run."""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table

from fedpg.cli.parse import parse


def main(argv: list[str]) -> int:
    """The verb. Returns the exit code."""
    from fedpg.paper.bench import BenchOptions, bench

    options = parse(BenchOptions, argv, "fedpg bench")
    found = bench(options)
    if options.json:
        print(json.dumps(found))
        return 0
    table = Table(title=f"{found['env']}, {found['lanes']} lanes, {found['device']}", title_justify="left")
    for column in ("", "steps a second", "fedpg is"):
        table.add_column(column, justify="right" if column else "left")
    for name, rate in found["steps_per_second"].items():
        ratio = found["fedpg_relative_to"].get(name)
        table.add_row(
            f"fedpg, {found['backend']}: whole training steps" if name == "fedpg" else name, f"{rate:,}", f"{ratio:.2f} x" if ratio else ""
        )
    console = Console()
    console.print(table)
    console.print(f"compiling and the first round took {found['seconds_to_first_round']} s", highlight=False)
    return 0

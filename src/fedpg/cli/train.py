"""`fedpg train`: one run, written to a run folder."""

import dataclasses
import shlex

from rich.console import Console
from rich.table import Column, Table

from fedpg.cli.parse import parse_run
from fedpg.runs.config import Config


@dataclasses.dataclass(frozen=True)
class TrainOptions(Config):
    """Train one policy for several different environments, without moving a trajectory.

    Example: fedpg train --env cartpole --agents 5 --rounds 150 --seeds 10 --out runs/mine

    Values left out come from the presets of the environment; the complete configuration is written to OUT/config.toml,
    and `fedpg train --config OUT/config.toml` runs it again.
    """

    out: str | None = None
    """The run folder: config.toml, manifest.json, metrics.jsonl, events.jsonl, checkpoint/. Left out, a new folder under runs/."""
    config: str | None = None
    """A TOML file with the same names as the flags; flags win over it."""
    resume: bool = False
    """Continue the run in --out, bit for bit; a larger --rounds makes it longer."""


SHOWN = ("return", "return_worst", "return_deterministic", "return_deterministic_worst", "objective", "grad_norm_sq", "spread", "ess")
SHOWN += ("env_steps", "floats_up", "floats_down", "bytes_up", "bytes_down")
"""The numbers of the last evaluation that the table shows."""


def main(argv: list[str]) -> int:
    """Trains; returns the exit code."""
    settings, options = parse_run(TrainOptions, argv, "fedpg train")

    from fedpg.machine import use_all_cores
    from fedpg.runs.progress import Bar
    from fedpg.runs.training import train

    use_all_cores()
    console = Console()
    run = train(out=options.out, resume=options.resume, progress=Bar(console), **settings)
    if run.round < run.config.rounds:
        print(f"stopped and saved after {run.round} of {run.config.rounds} rounds. Continue with:")
        print(f"fedpg train --resume --out {shlex.quote(str(run.folder))}")
        return 130
    row = run.rows[-1]
    table = Table("mean over seeds", Column(justify="right"), title=f"round {row['round']}, {run.folder}", title_justify="left")
    for name in SHOWN:
        if row.get(name) is not None:
            table.add_row(name, f"{row[name]:,.4g}" if row[name] < 1e4 else f"{row[name]:,.0f}")
    returns = [value for value in row["return_per_seed"] if value is not None]
    table.add_row("return, lowest and highest seed", f"{min(returns):.4g}, {max(returns):.4g}")
    table.add_row("failed seeds", str(len(row["failed_seeds"])))
    console.print(table)
    return 0

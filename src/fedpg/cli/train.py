"""`fedpg train`: one run, written to a run folder."""

import dataclasses
import shlex

from rich.console import Console
from rich.table import Table

from fedpg.cli.parse import parse_run
from fedpg.errors import UserError
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


def main(argv: list[str]) -> int:
    """Trains; returns the exit code."""
    settings, options = parse_run(TrainOptions, argv, "fedpg train")

    from fedpg.machine import use_all_cores
    from fedpg.runs.progress import Bar
    from fedpg.runs.training import train
    from fedpg.simulate_plain import StageError

    use_all_cores()
    console = Console()
    try:
        run = train(out=options.out, resume=options.resume, progress=Bar(console), **settings)
    except StageError as error:
        raise UserError(str(error).splitlines()[0]) from error
    if run.round < run.config.rounds:
        again = f"fedpg train --resume --out {shlex.quote(str(run.folder))}"
        line = f"stopped and saved after {run.round} of {run.config.rounds} rounds. Continue with: {again}"
        console.print(line, soft_wrap=True, highlight=False)
        return 130
    console.print(summary(run.rows[-1], str(run.folder)))
    return 0


def summary(row: dict, folder: str) -> Table:
    """The last line of a run as a table."""
    table = Table(title=f"round {row['round']}, {folder}", title_justify="left")
    table.add_column("mean over seeds")
    table.add_column("", justify="right")
    costs = ("env_steps", "trajectories", "floats_up", "floats_down")
    shown = ("return", "return_worst", "objective", "grad_norm_sq", "spread", "ess", *costs)
    for name in shown:
        if row.get(name) is not None:
            table.add_row(name, f"{row[name]:,.4g}" if row[name] < 1e4 else f"{row[name]:,.0f}")
    returns = [value for value in row["return_per_seed"] if value is not None]
    table.add_row("return, lowest and highest seed", f"{min(returns):.4g}, {max(returns):.4g}")
    if row["failed_seeds"]:
        table.add_row("failed seeds (round)", ", ".join(f"{seed} ({round})" for seed, round in row["failed_seeds"].items()))
    return table

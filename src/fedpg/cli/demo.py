"""`fedpg demo`: five CartPoles that differ clearly, one policy for all; a table and a picture."""

import dataclasses
import datetime
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from fedpg.cli.parse import parse
from fedpg.machine import use_all_cores

FIVE = {"length": [0.25, 0.35, 0.5, 0.75, 1.0], "gravity": [14.7, 6.5, 9.8, 12.0, 8.0], "start_range": [0.03, 0.1, 0.05, 0.08, 0.04]}
"""Half pole length (m), gravity (m/s^2) and start range of the five agents."""
ALGORITHMS = {"fedsvrpg-m": "FedSVRPG-M", "pavg": "PAvg", "local-only": "local only"}


@dataclasses.dataclass(frozen=True)
class DemoOptions:
    """Five CartPoles that differ in pole length, gravity and start; one common policy by FedSVRPG-M against PAvg and local-only."""

    rounds: int = 40
    """Communication rounds."""
    seeds: int = 10
    """Independent repetitions."""
    out: str | None = None
    """Folder for the three run folders and the picture; by default a new one under runs/."""


def demo(options: DemoOptions, console: Console) -> Path:
    """Runs the three algorithms, prints the table, and returns the path of the picture."""
    from fedpg.report.figures import Line, Panel, panels
    from fedpg.report.statistics import Estimate, estimate
    from fedpg.runs.config import Config
    from fedpg.runs.progress import Bar
    from fedpg.runs.training import train

    out = Path(options.out or f"runs/demo-{datetime.datetime.now():%Y%m%d-%H%M%S}")
    console.print("five CartPoles, each with its own " + ", ".join(f"{name}={values}" for name, values in FIVE.items()), highlight=False)
    table = Table(title=f"{options.rounds} rounds; mean over {options.seeds} seeds, 95 % interval")
    table.add_column("")
    for column in ("return of 100", "worst agent", "95 by", "floats/round"):
        table.add_column(column, justify="right", no_wrap=True)
    lines = []
    for algorithm, label in ALGORITHMS.items():
        config = Config(algorithm=algorithm, env_option=FIVE, batch=4, rounds=options.rounds, seeds=options.seeds, eval_every=2)
        run = train(config, out=out / algorithm, progress=Bar(console, label))
        if run.round < options.rounds:  # Ctrl-C ends the demo, not only this run
            raise KeyboardInterrupt
        rounds, last = np.array([row["round"] for row in run.rows]), run.rows[-1]
        returns = (np.array([row[f"{name}_per_seed"] for row in run.rows], float).T for name in ("return", "return_worst"))
        mean, worst = (estimate(values[np.isfinite(values).all(1)]) for values in returns)  # seeds that failed are left out
        reached = rounds[mean.mean >= 95]
        floats = (last["floats_up"] + last["floats_down"]) / options.rounds
        ends = (str(Estimate(x.mean[-1], x.low[-1], x.high[-1], x.seeds)) for x in (mean, worst))
        table.add_row(label, *ends, f"round {reached[0]}" if len(reached) else "-", f"{floats:,.0f}")
        lines += [Line(label, rounds, mean.mean, mean.low, mean.high), Line("_worst agent", rounds, worst.mean, style="--")]
    console.print(table)
    panel = Panel("mean over seeds with 95 % interval; dashed: the worst agent", "round", "return", lines)
    return panels([panel], out / "learning_curves.png", title="One policy for five different CartPoles")


def main(argv: list[str]) -> int:
    """The verb. Returns the exit code."""
    options = parse(DemoOptions, argv, "fedpg demo")
    use_all_cores()
    console = Console()
    console.print(f"picture: {demo(options, console)}", soft_wrap=True, highlight=False)
    return 0

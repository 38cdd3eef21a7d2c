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
    from fedpg.report.figures import curve, learning_curves
    from fedpg.report.statistics import estimate
    from fedpg.runs import training
    from fedpg.runs.config import Config
    from fedpg.runs.progress import Bar

    out = Path(options.out or f"runs/demo-{datetime.datetime.now():%Y%m%d-%H%M%S}")
    console.print("five CartPoles, each with its own " + ", ".join(f"{name}={values}" for name, values in FIVE.items()), highlight=False)
    title = f"{options.rounds} rounds; mean over {options.seeds} seeds, 95 % interval"
    table, curves = Table("", "return of 100", "worst agent", "95 by", "floats/round", title=title), []
    for algorithm, label in ALGORITHMS.items():
        config = Config(algorithm=algorithm, env_option=FIVE, batch=4, rounds=options.rounds, seeds=options.seeds, eval_every=2)
        run = training.train(config, out=out / algorithm, progress=Bar(console, label))
        if run.round < options.rounds:  # Ctrl-C ends the demo, not only this run
            raise KeyboardInterrupt
        one, last = curve(label, run.rows), run.rows[-1]
        reached = np.flatnonzero(one.mean.mean(0) >= 95)
        first, floats = (
            f"round {int(one.x[reached[0]])}" if len(reached) else "-",
            (last["floats_up"] + last["floats_down"]) / options.rounds,
        )
        table.add_row(label, str(estimate(one.mean[:, -1])), str(estimate(one.worst[:, -1])), first, f"{floats:,.0f}")
        curves.append(one)
    console.print(table)
    return learning_curves(
        curves, out / "learning_curves.png", title="One policy for five different CartPoles (mean over seeds, 95 % interval)"
    )


def main(argv: list[str]) -> int:
    """The verb. Returns the exit code."""
    options, console = parse(DemoOptions, argv, "fedpg demo"), Console()
    use_all_cores()
    console.print(f"picture: {demo(options, console)}", soft_wrap=True, highlight=False)
    return 0

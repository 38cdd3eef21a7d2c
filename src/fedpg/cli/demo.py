"""`fedpg demo`: five CartPoles that differ clearly, one policy for all; a table and a picture."""

import dataclasses
import datetime
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Column, Table

from fedpg.cli.parse import parse
from fedpg.machine import use_all_cores
from fedpg.runs.config import Config

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
    from fedpg.report.statistics import estimate
    from fedpg.runs.progress import Bar
    from fedpg.runs.training import train

    out = Path(options.out or f"runs/demo-{datetime.datetime.now():%Y%m%d-%H%M%S}")
    print("five CartPoles, each with its own " + ", ".join(f"{name}={values}" for name, values in FIVE.items()))
    columns = [Column(name, justify="right", no_wrap=True) for name in ("return of 100", "worst agent", "95 by", "floats/round")]
    table = Table("", *columns, title=f"{options.rounds} rounds; mean over {options.seeds} seeds, 95 % interval")
    lines = []
    for algorithm, label in ALGORITHMS.items():
        config = Config(algorithm=algorithm, env_option=FIVE, batch=4, rounds=options.rounds, seeds=options.seeds, eval_every=2)
        run = train(config, out=out / algorithm, progress=Bar(console, label))
        if run.round < options.rounds:  # Ctrl-C ends the demo, not only this run
            raise KeyboardInterrupt
        rounds = np.array([row["round"] for row in run.rows])
        returns, worst = (np.array([row[f"{name}_per_seed"] for row in run.rows], float) for name in ("return", "return_worst"))
        healthy = np.isfinite(returns).all(0)
        mean, low, high, _ = estimate(returns[:, healthy].T)
        ends = [str(estimate(values[-1, healthy])) for values in (returns, worst)]
        reached = [f"round {round}" for round in rounds[mean >= 95]] or ["-"]
        floats = (run.rows[-1]["floats_up"] + run.rows[-1]["floats_down"]) / options.rounds
        table.add_row(label, *ends, reached[0], f"{floats:,.0f}")
        lines += [Line(label, rounds, mean, low, high), Line("_worst agent", rounds, worst[:, healthy].mean(1), style="--")]
    console.print(table)
    panel = Panel("mean over seeds with 95 % interval; dashed: the worst agent", "round", "return", lines)
    return panels([panel], out / "learning_curves.png", title="One policy for five different CartPoles")


def main(argv: list[str]) -> int:
    """Runs the demo; returns the exit code."""
    options = parse(DemoOptions, argv, "fedpg demo")
    use_all_cores()
    print(f"picture: {demo(options, Console())}")
    return 0

"""The demo: five CartPoles that differ clearly, one policy for all. `make demo`, or `fedpg demo`."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from fedpg.report.figures import curve, learning_curves
from fedpg.report.stats import estimate
from fedpg.runs.config import Config

FIVE = ("length=[0.25,0.35,0.5,0.75,1.0]", "gravity=[14.7,6.5,9.8,12.0,8.0]", "start_range=[0.03,0.1,0.05,0.08,0.04]")
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
    """Where the three run folders and the picture go; left out, a new folder under runs/."""


def demo(options: DemoOptions, console: Console) -> Path:
    """Runs the three algorithms, prints the table, returns where the picture is."""
    from fedpg.runs.progress import Bar
    from fedpg.runs.training import train

    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    out = Path(options.out or f"runs/demo-{stamp}")
    console.print("five CartPoles, each with its own " + ", ".join(FIVE), highlight=False)
    curves, costs = [], []
    for algorithm, label in ALGORITHMS.items():
        config = Config(algorithm=algorithm, env_option=FIVE, batch=4, rounds=options.rounds, seeds=options.seeds, eval_every=2)
        run = train(config, out / algorithm, progress=Bar(console, label))
        if run.round < options.rounds:  # Ctrl-C ends the demo, not only this run
            raise KeyboardInterrupt
        curves.append(curve(label, run.rows))
        costs.append(run.rows[-1])

    table = Table(title=f"{options.rounds} rounds of {run.config.local_steps} local steps; mean over {options.seeds} seeds, 95 % interval")
    table.add_column("")
    for column in ("return of 100", "worst agent", "95 by", "floats/round"):
        table.add_column(column, justify="right", no_wrap=True)
    for one, row in zip(curves, costs, strict=True):
        reached = np.flatnonzero(one.mean.mean(0) >= 95)
        first = f"round {int(one.x[reached[0]])}" if len(reached) else "-"
        floats = (row["floats_up"] + row["floats_down"]) / options.rounds
        table.add_row(one.label, str(estimate(one.mean[:, -1])), str(estimate(one.worst[:, -1])), first, f"{floats:,.0f}")
    console.print(table)
    title = "One policy for five different CartPoles (mean over seeds, 95 % interval)"
    return learning_curves(curves, out / "learning_curves.png", title=title)

"""Seconds from the command to its first line of metrics: with an empty cache of compiled programs, and again."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fedpg import cache
from fedpg.bench import Options, Row

SIZES = {"fedpg train": [], "fedpg train --env random-mdp": ["--env", "random-mdp"]}
"""What is started, with the defaults of the command."""


def measure(options: Options) -> list[Row]:
    """The first start and the median of the others, for every command."""
    rows = []
    for name, flags in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            seconds = [first_metrics(Path(folder), number, flags) for number in range(1 + options.repeats)]
        group = {"group": name, "unit": ""}
        rows.append(group | {"name": "fedpg, the first time", "first_seconds": round(seconds[0], 2)})
        rows.append(group | {"name": "fedpg, again", "first_seconds": round(sorted(seconds[1:])[len(seconds[1:]) // 2], 2)})
    return rows


def first_metrics(folder: Path, number: int, flags: list[str]) -> float:
    """Seconds until the first line of metrics of a run in `folder`, whose cache its runs share."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment[cache.VARIABLE] = str(folder / "cache")
    metrics = folder / f"run-{number}" / "metrics.jsonl"
    command = [sys.executable, "-m", "fedpg", "train", "--rounds", "1", "--out", str(metrics.parent), *flags]
    began = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.01)
        seconds = time.perf_counter() - began
        process.terminate()
    return seconds

"""Seconds from a command to its first metrics, to those after a round, and of the demo: with an empty cache, and again."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fedpg import cache
from fedpg.bench import Options, Row

SIZES = {"fedpg train": [], "fedpg train --env random-mdp": ["--env", "random-mdp"]}
"""What is started, with the defaults of the command."""
LINES = 2
"""Of metrics: before the first round, and after it."""


def measure(options: Options) -> list[Row]:
    """The first start and the median of the others, for every command; then the same of the demo."""
    rows = []
    for name, flags in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            found = [seconds_of_lines(Path(folder), number, flags) for number in range(1 + options.repeats)]
        for who, starts in (("fedpg, the first time", found[:1]), ("fedpg, again", found[1:])):
            first, after = (round(statistics.median(times), 2) for times in zip(*starts, strict=True))
            rows.append({"group": name, "unit": "", "name": who, "first_seconds": first, "round_seconds": after})
    with tempfile.TemporaryDirectory() as folder:
        for who in ("fedpg, the first time", "fedpg, again"):
            began = time.perf_counter()
            command = [sys.executable, "-m", "fedpg", "demo", "--out", str(Path(folder) / who)]
            subprocess.run(command, env=environment(Path(folder)), check=True, capture_output=True)
            rows.append({"group": "fedpg demo", "unit": "", "name": who, "first_seconds": round(time.perf_counter() - began, 2)})
    return rows


def environment(folder: Path) -> dict[str, str]:
    """Of a process that keeps its compiled programs in `folder`."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return plain | {cache.VARIABLE: str(folder / "cache")}


def seconds_of_lines(folder: Path, number: int, flags: list[str]) -> list[float]:
    """Seconds until each of the first lines of metrics of a run in `folder`, whose cache its runs share."""
    metrics = folder / f"run-{number}" / "metrics.jsonl"
    command = [sys.executable, "-m", "fedpg", "train", "--rounds", "1", "--out", str(metrics.parent), *flags]
    began, seconds = time.perf_counter(), []
    with subprocess.Popen(command, env=environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while len(seconds) < LINES:
            ended = process.poll() is not None
            lines = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
            seconds += [time.perf_counter() - began] * (lines - len(seconds))
            if ended and lines < LINES:
                raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
            time.sleep(0.01)
    return seconds

"""Run folders: compare them, and runs in processes of their own that are killed and resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from fedpg.runs import checkpoint


def without_seconds(rows):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def final_arrays(folder):
    return checkpoint.read(folder / "checkpoint" / "state.safetensors")[0]


def assert_same_run(one, other):
    rows = [[json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()] for folder in (one, other)]
    assert without_seconds(rows[0]) == without_seconds(rows[1])
    a, b = final_arrays(one), final_arrays(other)
    assert a.keys() == b.keys()
    assert all(np.array_equal(a[name], b[name]) for name in a)


def start(out: Path, *arguments: str) -> subprocess.Popen:
    """`fedpg train` in a process of its own."""
    command = [sys.executable, "-m", "fedpg", "train", *arguments, "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})


def wait_for_rows(out: Path, count: int, process: subprocess.Popen) -> None:
    metrics = out / "metrics.jsonl"
    for _ in range(2400):
        if metrics.exists() and metrics.read_text().count("\n") >= count:
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    raise AssertionError("no rows after two minutes")


def kill_and_compare(folder: Path, arguments: list[str], rows: tuple[int, ...]) -> None:
    """Kills a run at random moments soon after it has each number of rows, resumes it, and compares it with an undisturbed one."""
    whole = start(folder / "whole", *arguments)
    assert whole.wait() == 0, whole.stderr.read()
    for number, count in enumerate(rows):
        process = start(folder / "killed", *arguments, *(["--resume"] if number else []))
        wait_for_rows(folder / "killed", count, process)
        time.sleep(np.random.default_rng().uniform(0.0, 0.3))
        process.kill()
        process.wait()
    last = start(folder / "killed", *arguments, "--resume")
    assert last.wait() == 0, last.stderr.read()
    assert_same_run(folder / "whole", folder / "killed")

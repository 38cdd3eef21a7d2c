"""`fedpg bench`: what it reports, and, in full size, that training keeps up with the bare engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from fedpg import bench as benchmarks
from fedpg.bench.draw import draw
from fedpg.bench.mujoco import ENGINE
from fedpg.cli import bench as verb
from fedpg.cli import main
from fedpg.errors import UserError

ROWS = [
    {
        "subject": "cartpole",
        "group": "a",
        "name": "fedpg",
        "rate": 300.0,
        "unit": "steps",
        "lanes": 4,
        "first_seconds": 2.0,
        "peak_bytes": 10**8,
    },
    {"subject": "cartpole", "group": "a", "name": "a loop", "rate": 100.0, "unit": "steps", "lanes": 1},
    {"subject": "cartpole", "group": "a, over lanes", "name": "fedpg", "rate": 50.0, "unit": "steps", "lanes": 1},
    {"subject": "cartpole", "group": "a, over lanes", "name": "fedpg", "rate": 300.0, "unit": "steps", "lanes": 16},
    {"subject": "first-result", "group": "train", "name": "fedpg, again", "unit": "", "first_seconds": 1.5},
]


def test_json_table_and_picture(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(benchmarks, "measure", lambda name, options: [row for row in ROWS if row["subject"] == name])
    assert main(["bench", "--json", "--out", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "bench.json").read_text()) == found
    assert (tmp_path / "bench.png").stat().st_size > 1000
    assert [row.get("ratio") for row in found["rows"]] == [{"a loop": 3.0}, None, None, None, None]
    assert found["options"]["subject"] == "all"
    assert main(["bench", "cartpole"]) == 0
    assert "a loop" in capsys.readouterr().out
    assert draw(found | {"rows": ROWS[2:4]}, tmp_path / "lanes.png").exists()


def test_mistakes():
    with pytest.raises(UserError, match="subject"):
        verb.bench(verb.BenchOptions(subject="speed"))
    with pytest.raises(UserError, match="3 agents cannot share 64 lanes evenly"):
        benchmarks.measure("mujoco", benchmarks.Options(agents=3))


def test_measurements_are_taken_in_turns():
    order = []
    work = {name: lambda name=name: order.append(name) or float(len(order)) for name in ("a", "b")}
    assert benchmarks.in_turns(3, **work) == {"a": 3.0, "b": 4.0}
    assert order == ["a", "b"] * 3


@pytest.mark.slow
def test_training_keeps_up_with_the_engine():
    """Policy, physics and gradients at 64 lanes, beside the engine open-loop."""
    # As a user runs it: without the XLA flags that make tests compile fast.
    plain = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "fedpg", "bench", "mujoco", "--json"]
    shown = [subprocess.run(command, env=plain, capture_output=True, text=True, check=True).stdout for _ in range(3)]
    rows = [json.loads(text)["rows"][0] for text in shown]
    assert max(row["ratio"][ENGINE] for row in rows) >= 0.65, rows

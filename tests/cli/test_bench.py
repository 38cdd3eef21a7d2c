"""`fedpg bench`: what it reports, and, in full size, that training keeps up with the bare engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import jax.numpy as jnp
import pytest

from fedpg import bench as benchmarks
from fedpg.bench import federation, first_result, scale
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


def test_slopes(monkeypatch):
    """Seconds that double with the size have slope one; sizes without work do not matter."""
    order = []
    work = {size: lambda size=size: order.append(size) or 0.5 * size for size in (1, 4, 16)}
    row = scale.row_of("a", "rounds", work, benchmarks.Options(repeats=2))
    assert (row["sizes"], row["seconds"], row["slope"]) == ([1, 4, 16], [0.5, 2.0, 8.0], 1.0)
    assert order == [1, 4, 16] * 3
    assert len(row["peaks"]) == 3
    assert scale.slope([1, 2, 4], [3.0, 3.0, 3.0]) == 0.0
    assert scale.slope([1, 2, 4], [1.0, 4.0, 16.0]) == 2.0
    assert "peaks" not in scale.row_of("a", "seeds", work, benchmarks.Options(repeats=2))


def test_every_size_of_the_slopes_is_measured(monkeypatch):
    """Three sizes of four dimensions of two tasks; one training serves the smallest size of all dimensions."""
    made = []

    class Counted:
        def __init__(self, config, rounds):
            made.append((config.env, config.seeds, config.agents, config.horizon))

        def seconds(self, rounds=1):
            return float(rounds)

    monkeypatch.setattr(scale, "Training", Counted)
    rows = scale.measure(benchmarks.Options(repeats=1))
    assert [row["group"].rpartition(" ")[2] for row in rows] == ["rounds", "seeds", "agents", "horizon"] * 2
    assert len(made) == len(set(made)) == 2 * 7


def test_the_first_lines_of_metrics_are_timed(tmp_path):
    """Once before a round and once after it; a command that fails is an error and no time."""
    small = ["--env", "random-mdp", "--agents", "2", "--horizon", "3", "--local-steps", "1"]
    before, after = first_result.seconds_of_lines(tmp_path, 0, small)
    assert 0.0 < before <= after
    with pytest.raises(RuntimeError, match="ended with 2"):
        first_result.seconds_of_lines(tmp_path, 1, ["--agents", "none"])


@pytest.mark.slow
def test_training_keeps_up_with_the_engine():
    """Policy, physics and gradients at 64 lanes, beside the engine open-loop."""
    # As a user runs it: without the XLA flags that make tests compile fast.
    plain = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "fedpg", "bench", "mujoco", "--json"]
    shown = [subprocess.run(command, env=plain, capture_output=True, text=True, check=True).stdout for _ in range(3)]
    rows = [json.loads(text)["rows"][0] for text in shown]
    assert max(row["ratio"][ENGINE] for row in rows) >= 0.65, rows


def test_steps_beyond_an_int32():
    info = SimpleNamespace(local=SimpleNamespace(usage=SimpleNamespace(env_steps=jnp.full((4, 1), 2**30, jnp.int32))))
    training = object.__new__(benchmarks.Training)
    training._sim, training._state = SimpleNamespace(run=lambda state, rounds: (state, info)), None
    assert training._run(1)[0] == 2**32


@pytest.mark.federation
def test_a_federation_is_measured():
    """Server and agents start with the flags that they have today."""
    assert federation.serve() > 0.0

"""Trackers hold what metrics.jsonl holds, once; one that fails costs the run nothing."""

from __future__ import annotations

import functools
import json
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedpg.cli import main
from fedpg.errors import UserError
from fedpg.runs import tensorboard, trackers, training
from fedpg.runs.config import Config
from fedpg.runs.folder import RunFolder, read_lines
from fedpg.runs.progress import Progress
from fedpg.runs.training import train

SMALL = Config(env="random-mdp", algorithm="pavg", agents=2, rounds=4, local_steps=1, horizon=3, eval_every=1, track=("tensorboard",))


def expected(out: Path) -> dict[str, list[tuple[int, float]]]:
    """The series that a tracker should have, from metrics.jsonl alone."""
    series: dict[str, list[tuple[int, float]]] = {}
    for line in (out / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        plain = {k: v for k, v in row.items() if not isinstance(v, (list, dict)) and k != "round"}
        plain |= {f"{k}/{i}": x for k, v in row.items() if k.endswith("_per_agent") for i, x in enumerate(v)}
        plain |= {"failed_seeds": len(row["failed_seeds"])}
        for name, value in plain.items():
            if value is not None:
                series.setdefault(name, []).append((row["round"], value))
    return series


def shown(out: Path) -> dict[str, list[tuple[int, float]]]:
    """The series that TensorBoard reads."""
    events = EventAccumulator(str(out / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return {name: [(s.step, s.value) for s in events.Scalars(name)] for name in events.Tags()["scalars"]}


def rounded(series: dict[str, list[tuple[int, float]]]) -> dict[str, list[tuple[int, float]]]:
    """TensorBoard keeps float32."""
    return {name: [(step, float(np.float32(value))) for step, value in points] for name, points in series.items()}


def events_of(out: Path) -> list[dict]:
    file = out / "events.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_tensorboard_shows_every_row_and_the_configuration(tmp_path):
    train(SMALL, out=tmp_path / "run")
    assert shown(tmp_path / "run") == rounded(expected(tmp_path / "run"))
    assert [step for step, _ in shown(tmp_path / "run")["return_per_agent/1"]] == [0, 1, 2, 3, 4]
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert 'env = "random-mdp"' in events.Tensors("config")[0].tensor_proto.string_val[0].decode()


class Killed(BaseException):
    """As `kill -9`: no handler runs but our own."""


def test_killed_after_a_row_and_before_its_checkpoint_then_resumed_nothing_is_there_twice(tmp_path, monkeypatch):
    """Of the row without a checkpoint nothing may have been sent: it is dropped and made again. A TensorBoard looks on meanwhile."""

    class Kill(Progress):
        def evaluated(self, row):
            if row["round"] == 2:
                raise Killed

    out = tmp_path / "run"
    with pytest.raises(Killed):
        train(SMALL, out=out, progress=Kill())
    assert [row["round"] for row in read_lines(RunFolder(out).metrics)] == [0, 1, 2]
    watching = EventAccumulator(str(out / "tensorboard"))
    watching.Reload()
    assert [s.step for s in watching.Scalars("return")] == [0, 1]
    train(SMALL, out=out, resume=True)
    assert shown(out) == rounded(expected(out))
    watching.Reload()
    assert [s.step for s in watching.Scalars("return")] == [0, 1, 2, 3, 4]
    train(SMALL, out=out, resume=True, rounds=5, track=())
    assert len(shown(out)["return"]) == 5, "a resumed run may leave its trackers"
    assert "track = []" in (out / "config.toml").read_text()
    assert main(["track", str(out), "--to", "tensorboard"]) == 0
    assert shown(out) == rounded(expected(out))
    assert len(shown(out)["return"]) == 6


def test_one_that_fails_in_the_middle_is_on_record_and_the_run_is_whole(tmp_path, monkeypatch):
    class Breaks(tensorboard.Tracker):
        def log(self, round, time, values):
            if round == 2:
                raise OSError("no space left\non device")
            super().log(round, time, values)

    monkeypatch.setattr(tensorboard, "Tracker", Breaks)
    said = []

    class Screen(Progress):
        def happened(self, event):
            said.append(event["what"])

    run = train(SMALL, out=tmp_path / "run", progress=Screen())
    assert (run.round, [row["round"] for row in run.rows]) == (4, [0, 1, 2, 3, 4])
    (event,) = events_of(tmp_path / "run")
    assert (event["during"], event["agent"]) == ("tracking", None)
    assert event["what"].startswith("tensorboard: OSError: no space left; nothing is lost")
    assert f"fedpg track {tmp_path / 'run'} --to tensorboard" in event["what"]
    assert said == [event["what"]]
    monkeypatch.undo()
    assert main(["track", str(tmp_path / "run"), "--to", "tensorboard"]) == 0
    assert shown(tmp_path / "run") == rounded(expected(tmp_path / "run"))


def test_one_that_hangs_is_left_behind_at_the_end(tmp_path, monkeypatch):
    released = threading.Event()

    class Hangs(tensorboard.Tracker):
        def log(self, round, time, values):
            released.wait(60)

    monkeypatch.setattr(tensorboard, "Tracker", Hangs)
    monkeypatch.setattr(training, "sending", functools.partial(trackers.sending, patience=0.1))
    assert train(SMALL, out=tmp_path / "run").round == 4
    (event,) = events_of(tmp_path / "run")
    assert event["what"].startswith("tensorboard: it did not take everything in time")
    assert main(["track", str(tmp_path / "run"), "--to", "tensorboard"]) == 2, "two processes must not send the same run"
    released.set()


def test_the_name_of_a_run_is_made_once_before_any_tracker_opens(tmp_path, monkeypatch):
    seen = []

    class Looks(tensorboard.Tracker):
        def __init__(self, folder, config, run_id):
            seen.append(((folder.path / "tracking-id").read_text(), run_id))
            super().__init__(folder, config, run_id)

    monkeypatch.setattr(tensorboard, "Tracker", Looks)
    train(SMALL, out=tmp_path / "run", rounds=1)
    train(SMALL, out=tmp_path / "run", rounds=2, resume=True)
    name = trackers.run_id(RunFolder(tmp_path / "run"))
    assert seen == [(name, name)] * 2


def test_trackers_that_are_unknown_or_not_installed_are_one_line(tmp_path, monkeypatch, capsys):
    assert main(["train", "--track", "tensorbord", "--out", str(tmp_path / "run")]) == 2
    assert "unknown tracker 'tensorbord': did you mean 'tensorboard'?" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["train", "--track", "wandb", "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == "fedpg: --track wandb needs wandb: pip install 'fedpg[wandb]'\n"
    assert main(["track", str(tmp_path / "run"), "--to", "wandb"]) == 2
    assert capsys.readouterr().err.startswith(f"fedpg: no run in {tmp_path / 'run'}")
    assert not (tmp_path / "run").exists()
    (tmp_path / "c.toml").write_text('track = "wandb"\n')
    assert main(["train", "--config", str(tmp_path / "c.toml")]) == 2
    assert "track must be a list, not 'wandb'" in capsys.readouterr().err
    with pytest.raises(UserError, match="unknown tracker"):
        train(SMALL, out=tmp_path / "run", track=("x",))

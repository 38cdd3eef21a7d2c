"""MLflow on a database of its own and Weights & Biases offline, for real, against metrics.jsonl."""

from __future__ import annotations

import dataclasses
import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedpg.cli import main
from fedpg.runs.config import Config
from fedpg.runs.progress import Progress
from fedpg.runs.training import train

pytestmark = pytest.mark.slow

SMALL = Config(env="random-mdp", algorithm="pavg", agents=2, rounds=4, local_steps=1, horizon=3, eval_every=1)


class Killed(BaseException):
    """As `kill -9`."""


class Kill(Progress):
    def evaluated(self, row):
        if row["round"] == 2:
            raise Killed


def expected(out: Path) -> dict[str, list[tuple[int, float]]]:
    """Three series of different kinds, from metrics.jsonl alone."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    of = {"return": lambda row: row["return"], "env_steps": lambda row: row["env_steps"], "seconds": lambda row: row["seconds"]}
    of["return_per_agent/1"] = lambda row: row["return_per_agent"][1]
    return {name: [(row["round"], value(row)) for row in rows] for name, value in of.items()}


def killed_and_resumed(config: Config, out: Path) -> None:
    with pytest.raises(Killed):
        train(config, out=out, progress=Kill())
    train(config, out=out, resume=True)
    assert not (out / "events.jsonl").exists(), (out / "events.jsonl").read_text()


def test_mlflow_has_every_row_once_after_a_kill_a_torn_point_and_a_second_sending(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    from mlflow import MlflowClient

    out = tmp_path / "run"
    killed_and_resumed(dataclasses.replace(SMALL, track=("mlflow",)), out)
    client = MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("fedpg").experiment_id])

    def series(name):
        return sorted((metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name))

    assert {name: series(name) for name in expected(out)} == expected(out)
    assert (run.info.status, run.data.params["env"]) == ("FINISHED", "random-mdp")
    # a longer run, of whose next point an earlier process had sent a part
    train(SMALL, out=out, resume=True, rounds=6, track=())
    client.log_metric(run.info.run_id, "return", expected(out)["return"][5][1], 1, 5)
    for _ in range(2):
        assert main(["track", str(out), "--to", "mlflow"]) == 0, capsys.readouterr().err
    assert {name: series(name) for name in expected(out)} == expected(out)
    assert len(series("return")) == 7


def records(data: bytes) -> Iterator[bytes]:
    """Of a .wandb file: after 7 bytes LevelDB's log, blocks of 32 KiB with pieces of records, each after its checksum, length and kind."""
    at, parts = 7, []
    while at < len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts.append(data[at + 7 : at + 7 + length])
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield b"".join(parts)
            parts = []


def test_wandb_offline_holds_every_row_once(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    from wandb.proto.wandb_internal_pb2 import Record

    out = tmp_path / "run"
    killed_and_resumed(dataclasses.replace(SMALL, track=("wandb",)), out)
    (file,) = (out / "wandb").glob("offline-run-*/*.wandb")

    def history() -> dict[str, list[tuple[int, float]]]:
        found = {name: [] for name in expected(out)}
        for data in records(file.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                values = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                for name in found:
                    found[name].append((record.history.step.num, values[name]))
        return found

    until = time.monotonic() + 20  # wandb's own process writes on after `finish` has returned
    while history() != expected(out) and time.monotonic() < until:
        time.sleep(0.2)
    assert history() == expected(out)


def test_wandb_without_a_key_is_one_line(tmp_path, monkeypatch, capsys):
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    import wandb

    wandb.teardown()  # it keeps the settings of the test before
    assert main(["train", "--track", "wandb", "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.endswith("fedpg: --track wandb has no key: run wandb login first, or set WANDB_MODE=offline\n")
    assert not (tmp_path / "run").exists()

"""Files that survive a crash: atomic writes, metrics cut short, damaged checkpoints, locks."""

from __future__ import annotations

import errno
import json
import os

import numpy as np
import pytest

from fedpg.errors import UserError
from fedpg.runs import checkpoint, manifest
from fedpg.runs.folder import RunFolder, write_atomically

ARRAYS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([1, 2], np.int64)}


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x"
    write_atomically(path, b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device; what was there before is unharmed"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_rows_after_the_checkpoint_and_half_lines_are_dropped(tmp_path):
    folder = RunFolder(tmp_path)
    for round in (0, 10, 20):
        folder.append_row({"round": round})
    with folder.metrics.open("a") as file:
        file.write('{"round": 30, "ret')
    assert [row["round"] for row in folder.rows()] == [0, 10, 20]
    assert [row["round"] for row in folder.keep_rows(10)] == [0, 10]
    assert [json.loads(line)["round"] for line in folder.metrics.read_text().splitlines()] == [0, 10]


def test_nan_never_reaches_the_metrics(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        RunFolder(tmp_path).append_row({"return": float("nan")})


def test_folders_that_hold_something_are_refused(tmp_path):
    with RunFolder(tmp_path / "new").lock():
        RunFolder(tmp_path / "new").require_empty()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="is a file"):
        RunFolder(tmp_path / "file").require_empty()
    with pytest.raises(UserError, match="is not empty"):
        RunFolder(tmp_path).require_empty()
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(UserError, match="holds a run already: add --resume"):
        RunFolder(tmp_path).require_empty()
    with pytest.raises(UserError, match="no run to resume"):
        RunFolder(tmp_path / "new").require_run()


def test_two_processes_do_not_share_a_folder(tmp_path):
    with RunFolder(tmp_path).lock(), pytest.raises(UserError, match="another process is working"), RunFolder(tmp_path).lock():
        pass
    with RunFolder(tmp_path).lock():
        pass


def test_checkpoint_round_trip(tmp_path):
    path = tmp_path / "state.safetensors"
    checkpoint.write(path, ARRAYS, {"round": 3})
    arrays, about = checkpoint.read(path)
    assert about["round"] == 3
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


@pytest.mark.parametrize("damage", ["empty", "half", "one short", "flipped bit", "text"])
def test_a_damaged_checkpoint_is_one_clear_error(tmp_path, damage):
    path = tmp_path / "state.safetensors"
    checkpoint.write(path, ARRAYS, {"round": 3})
    data = bytearray(path.read_bytes())
    flipped = data.copy()
    flipped[-1] ^= 1
    broken = {"empty": b"", "half": data[: len(data) // 2], "one short": data[:-1], "flipped bit": flipped, "text": b"hello"}[damage]
    path.write_bytes(bytes(broken))
    with pytest.raises(UserError, match="is damaged") as raised:
        checkpoint.read(path)
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == bytes(broken)


def test_manifest_says_what_it_was_made_with(tmp_path):
    manifest.write(tmp_path / "manifest.json", {"mine": 1})
    found = json.loads((tmp_path / "manifest.json").read_text())
    assert found["mine"] == 1
    assert found["packages"]["jax"]
    assert {"devices", "matmul_precision", "xla_flags", "python", "created", "command"} <= set(found)
    assert manifest.version("no-such-package") is None
    manifest.add_resume(tmp_path / "manifest.json", 7)
    assert [again["round"] for again in json.loads((tmp_path / "manifest.json").read_text())["resumed"]] == [7]

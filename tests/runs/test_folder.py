"""Files that survive a crash: atomic writes, lines cut short, locks, the manifest."""

from __future__ import annotations

import errno
import json
import os

import pytest

from fedpg.errors import UserError
from fedpg.runs.folder import RunFolder, append_line, keep_lines, manifest, read_lines, read_manifest, version, write_atomically
from fedpg.simulate import PRECISION


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


def test_unwanted_and_half_lines_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for round in (0, 10, 20):
        append_line(path, {"round": round})
    with path.open("a") as file:
        file.write('{"round": 30, "ret')
    assert [row["round"] for row in read_lines(path)] == [0, 10, 20]
    assert [row["round"] for row in keep_lines(path, lambda row: row["round"] <= 10)] == [0, 10]
    assert [json.loads(line)["round"] for line in path.read_text().splitlines()] == [0, 10]
    assert keep_lines(tmp_path / "none", lambda row: True) == []
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("damaged", ['{"round": 10, "ret', "[1, 2]", '{"round": NaN}', "\xff\x00"])
def test_a_damaged_line_in_the_middle_is_named_and_nothing_is_dropped(damaged, tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"round": 0}\n' + damaged.encode("latin-1") + b'\n{"round": 20}\n')
    before = path.read_bytes()
    for action in (read_lines, lambda path: keep_lines(path, lambda row: row["round"] < 10)):
        with pytest.raises(UserError, match=r"line 2 of .* is damaged: restore the file from a copy, or delete the line"):
            action(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{", b"\xff"])
def test_a_manifest_that_is_none_is_one_line(content, tmp_path):
    if content is not None:
        (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(UserError, match=r"manifest.json is missing or damaged: restore it"):
        read_manifest(tmp_path / "manifest.json")
    (tmp_path / "manifest.json").write_text("{}")
    assert read_manifest(tmp_path / "manifest.json") == {}


def test_nan_never_reaches_the_metrics(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        append_line(tmp_path / "x", {"return": float("nan")})


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


def test_the_manifest_is_json_and_has_the_versions():
    found = json.loads(json.dumps(manifest()))
    assert found["packages"]["jax"] == version("jax")
    assert found["matmul_precision"] == PRECISION
    assert version("no-such-package") is None

"""Run folders that are damaged, half-written, foreign or unreadable: every verb that reads one says so in one line, exit code 2."""

from __future__ import annotations

import os
import random
import shutil

import pytest

import fedpg
from fedpg.cli import main
from fedpg.runs import checkpoint
from fedpg.runs.folder import RunFolder

READERS = {  # the verbs that read a file, without those that would run an environment
    "config.toml": ("report", "resume"),
    "manifest.json": ("report", "resume"),
    "metrics.jsonl": ("report",),
    "policy/policy.safetensors": ("evaluate", "export", "personalize", "init"),
    "checkpoint/state.safetensors": ("track",),
}
DAMAGE = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "noise": lambda data: data[:40] + random.Random(0).randbytes(40) + data[80:],
    "deep": lambda data: b"[" * 100_000,
    "pickle": lambda data: b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94K\x01s.",
    "huge header": lambda data: (2**62).to_bytes(8, "little") + b"{}",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    fedpg.train(env="random-mdp", agents=2, rounds=2, local_steps=1, horizon=4, seeds=2, eval_every=1, out=out)
    return out


def arguments(verb, run, tmp_path):
    return {
        "report": ["report", str(run), "--episodes", "0", "--out", str(tmp_path / "page.html")],
        "resume": ["train", "--resume", "--out", str(run)],
        "evaluate": ["evaluate", str(run), "--episodes", "1"],
        "export": ["export", str(run), "--out", str(tmp_path / "export"), "--no-video"],
        "play": ["play", str(run), "--out", str(tmp_path / "film.mp4")],
        "personalize": ["personalize", str(run), "--out", str(tmp_path / "personal")],
        "init": ["train", "--init-from", str(run), "--out", str(tmp_path / "more")],
        "track": ["track", str(run), "--to", "tensorboard"],
    }[verb]


def refused(verb, run, tmp_path, capsys):
    """The one line of a verb that refuses the run."""
    capsys.readouterr()
    assert main(arguments(verb, run, tmp_path)) == 2, verb
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    assert len(error) < 600
    return error


@pytest.mark.parametrize("file", READERS)
def test_a_damaged_file_is_one_line(file, whole, tmp_path, capsys):
    for name, damage in DAMAGE.items():
        if name == "half" and file == "metrics.jsonl":  # a last line cut off by a crash is left out
            continue
        shutil.copytree(whole, tmp_path / "run")
        path = tmp_path / "run" / file
        before = damage(path.read_bytes())
        path.write_bytes(before)
        for verb in READERS[file] if before or file != "config.toml" else ():  # an empty configuration is one of defaults
            refused(verb, tmp_path / "run", tmp_path, capsys)
            assert path.read_bytes() == before  # what is left can still be mended
        shutil.rmtree(tmp_path / "run")
    assert [entry.name for entry in tmp_path.iterdir()] == []


def test_a_finished_run_whose_last_lines_are_lost_is_not_resumed(whole, tmp_path, capsys):
    """The lines are written before the checkpoint: no crash can lose them, and resuming could not bring them back."""
    shutil.copytree(whole, tmp_path / "run")
    metrics = RunFolder(tmp_path / "run").metrics
    lines = metrics.read_bytes().splitlines(keepends=True)
    for left in (b"", lines[0], b"".join(lines)[:-5]):
        metrics.write_bytes(left)
        assert "it has no line for round 2" in refused("resume", tmp_path / "run", tmp_path, capsys)
        assert metrics.read_bytes() == left
    metrics.unlink()
    metrics.mkdir()
    for verb in ("resume", "report"):
        assert "cannot read" in refused(verb, tmp_path / "run", tmp_path, capsys)


def test_a_checkpoint_of_something_else_is_one_line(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "run")
    file = RunFolder(tmp_path / "run").checkpoint
    arrays, about = checkpoint.read(file)
    for other in ([], {"round": 2}, about | {"round": "two"}, about | {"round": 10**30}):
        checkpoint.write(file, arrays, other)
        assert "is of something else" in refused("resume", tmp_path / "run", tmp_path, capsys)


def test_folders_of_other_kinds_are_one_line(whole, tmp_path, capsys):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "model.zip").write_bytes(b"PK\x03\x04")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "two\nlines").mkdir()
    places = {"foreign": "", "loop": "", "two\nlines": "two lines", "x" * 300: "name too long"}
    for name, what in places.items():
        for verb in ("evaluate", "report", "export", "play", "personalize", "init", "resume", "track"):
            assert what in refused(verb, tmp_path / name, tmp_path, capsys)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_folder_of_somebody_else_is_one_line(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run").chmod(0)
    for folder in tmp_path.parents[:3]:  # those of pytest are private
        folder.chmod(0o755)
    for verb in ("evaluate", "report", "resume"):
        try:
            os.seteuid(65534)
            assert "Permission denied" in refused(verb, tmp_path / "run", tmp_path, capsys)
        finally:
            os.seteuid(0)


def test_a_manifest_of_other_types_is_one_line(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "manifest.json").write_text('{"resumed": 3}')
    assert "manifest.json is missing or damaged" in refused("resume", tmp_path / "run", tmp_path, capsys)

"""`fedpg serve` and `fedpg join`: what cannot be is refused in one line, before anything is started."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedpg.cli import main


@pytest.fixture(autouse=True)
def _nothing_is_started(monkeypatch):
    def refuse(*words, **more):
        raise AssertionError(f"started {words}")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr("signal.signal", lambda *given: None)


def refused(argv, capsys):
    assert main(argv) == 2
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0
    return said


SERVE = [
    ([], "give either --keys FOLDER"),
    (["--insecure", "--keys", "keys"], "give either --keys FOLDER"),
    (["--keys", ""], "give either --keys FOLDER"),
    (["--insecure"], "give --config FILE"),
    (["--insecure", "--resume"], "no run to resume"),
    (["--insecure", "--config", "nowhere.toml"], "no configuration file"),
]


@pytest.mark.parametrize(("flags", "message"), SERVE)
def test_serve_refuses(flags, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused(["serve", "--out", "run", *flags], capsys)
    assert not (tmp_path / "run").exists()


CONFIGS = [
    ("agents = 3", ["--quorum", "4"], "quorum must be from 1 to the 3 agents"),
    ("agents = 3\nparticipation = 0.4", ["--quorum", "2"], "quorum 2 is more than the 1 agents of a round"),
    ("agents = 3", ["--start-with", "4"], "start-with must be from 0 to the 3 agents"),
    ("agents = 3", ["--deadline", "-1"], "deadline must be a number of seconds"),
    ("seeds = 2", [], "runs one seed"),
    ('attack = "zero"', [], "agents decide about attacks"),
    ('algorithm = "pooled"', [], "cannot run between machines"),
    ('algorithm = "pavgg"', [], "did you mean 'pavg'"),
    ("agents = 3", ["--address", "nowhere"], "is no address"),
    ("agents = 3", ["--status", "127.0.0.1:no"], "is no address"),
    ("agents = 3", ["--policy", "127.0.0.1"], "is no address"),
    ('env = "spaces"', [], "spaces needs one of"),
]


@pytest.mark.parametrize(("text", "flags", "message"), CONFIGS)
def test_serve_refuses_what_no_federation_can_be(text, flags, message, capsys, tmp_path):
    (tmp_path / "fed.toml").write_text(text)
    status = [] if "--status" in flags else ["--status", "none"]
    argv = ["serve", "--out", str(tmp_path / "run"), "--config", str(tmp_path / "fed.toml"), "--insecure", *status, *flags]
    assert message in refused(argv, capsys)
    assert not (tmp_path / "run" / "config.toml").exists()


def test_serve_needs_the_files_of_its_keys(capsys, tmp_path):
    (tmp_path / "fed.toml").write_text("agents = 2")
    argv = ["serve", "--out", str(tmp_path / "run"), "--config", str(tmp_path / "fed.toml"), "--keys", str(tmp_path), "--status", "none"]
    assert "no ca.crt in" in refused(argv, capsys)


JOIN = [
    (["--server", "h:1"], "give either --keys FOLDER"),
    (["--insecure"], "--server"),
    (["--server", "h:1", "--insecure", "--keys", "keys"], "give either --keys FOLDER"),
    (["--server", "h:1", "--insecure", "--agent-id", "-1"], "agent-id counts from 0"),
    (["--server", "h:1", "--insecure", "--attack", "fedpg-attack"], "invalid choice 'fedpg-attack' for argument '--attack'"),
    (["--server", "h:1", "--insecure", "--env", "cartpol"], "did you mean 'cartpole'"),
    (["--server", "here", "--insecure"], "is no address"),
    (["--server", "h:1", "--insecure", "--algorithm", "nowhere.py:make"], "nowhere.py"),
    (["--server", "h:1", "--insecure", "--policy", "pavg"], "must be module:function or path/to/file.py:function"),
    (["--server", "h:1", "--insecure", "--socket", "x"], "unknown flag --socket"),
    (["--server", "h:1", "--keys", "keys"], "no ca.crt in keys"),
]


@pytest.mark.parametrize(("flags", "message"), JOIN)
def test_join_refuses(flags, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = [*(("--agent-id", "0") if "--agent-id" not in flags else ()), *(("--env", "cartpole") if "--env" not in flags else ())]
    assert message in refused(["join", *given, *flags], capsys)


@pytest.mark.parametrize(
    "argv", [["serve", "--insecure", "--config"], ["join", "--server", "h:1", "--agent-id", "0", "--env", "cartpole", "--insecure"]]
)
def test_without_flower_the_extra_is_named(argv, capsys, tmp_path, monkeypatch):
    (tmp_path / "fed.toml").write_text("agents = 2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "flwr", None)
    given = [*argv, "fed.toml"] if argv[-1] == "--config" else argv
    assert "pip install 'fedpg[flower]'" in refused(given, capsys)

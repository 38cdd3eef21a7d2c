"""docs/how-to/troubleshooting.md: every command prints the line that the page shows, and changes nothing."""

from __future__ import annotations

import re
import shlex
import sys

import pytest

import fedpg
import fedpg.envs.mujoco
from fedpg.cli import main
from helpers.pages import ROOT

PAGE = (ROOT / "docs" / "how-to" / "troubleshooting.md").read_text()
SHOWN = re.findall(r"^\$ (fedpg .*)\n(fedpg: .*)$", "\n".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)), re.MULTILINE)
ROOMS = """
class Room:
    def __init__(self):
        raise OSError("no sensor at /dev/ttyUSB0")


def make(**options):
    return Room()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a person would be: a run, a federation's configuration and an environment that raises."""
    folder = tmp_path_factory.mktemp("here")
    settings = {"env": "random-mdp", "algorithm": "pavg", "agents": 2, "rounds": 1, "local_steps": 1, "horizon": 3, "eval_every": 1}
    fedpg.train(**settings, out=folder / "runs" / "mine")
    (folder / "fed.toml").write_text('env = "cartpole"\nagents = 2\nrounds = 4\n')
    (folder / "rooms.py").write_text(ROOMS)
    return folder


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


@pytest.mark.parametrize(("command", "line"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_command_prints_the_line(command, line, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    if "halfcheetah" in command:  # as if MuJoCo were not installed
        for name in ("models", "batch"):
            monkeypatch.delitem(sys.modules, f"fedpg.envs.mujoco.{name}", raising=False)
            monkeypatch.delattr(fedpg.envs.mujoco, name, raising=False)
        for name in [name for name in sys.modules if name.split(".")[0] == "mujoco"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "mujoco", None)
    before = contents(folder)
    assert main(shlex.split(command)[1:]) == 2
    assert capsys.readouterr().err.strip() == line
    assert contents(folder) == before


def test_there_are_at_least_ten():
    assert len(SHOWN) >= 10

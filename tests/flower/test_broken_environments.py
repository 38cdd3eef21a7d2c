"""`fedpg join` with an environment that does not work: it ends with exit code 2 and one line before it connects, or goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedpg.errors import UserError
from fedpg.flower import trial
from fedpg.flower.trial import try_environment
from helpers import broken_env
from helpers.real import PATIENCE

FILE = broken_env.__file__
BROKEN = {
    "no-such-file.py:make": "no file no-such-file.py",
    "syntax.py:make": "syntax.py cannot be imported: SyntaxError",
    f"{FILE}:WrongShape": "did you mean 'WrongShapes'?",
    f"{FILE}:a_text": "a_text returned a str: expected an environment",
    f"{FILE}:WrongShapes": "observation has shape (3,), not (1,)",
    f"{FILE}:NaNRewards": "reward is nan",
    f"{FILE}:RaisesInReset": "reset raised RuntimeError: no power",
    f"{FILE}:RaisesInStep": "step raised RuntimeError: no grip",
    f"{FILE}:NeverEnds": "hangs: it was not made, reset and stepped 3 times within",
    "cartpol": "did you mean 'cartpole'?",
}
WORKING = ("PrintsMuch", "Forks", "Line")
IN_TIME = "import sys; from fedpg.flower import trial; trial.SECONDS = 15.0; from fedpg.cli import run; run()"


def join(folder: Path, env: str, number: int, errors: int = subprocess.PIPE) -> subprocess.Popen:
    words = ["--server", "127.0.0.1:9", "--agent-id", "0", "--env", env, "--insecure", "--folder", str(folder / f"agent-{number}")]
    streams = {"stdout": subprocess.PIPE, "stderr": errors, "text": True}
    return subprocess.Popen([sys.executable, "-c", IN_TIME, "join", *words], cwd=folder, env=dict(os.environ), **streams)


@pytest.mark.federation
def test_ten_environments_that_do_not_work_end_join_before_it_connects(tmp_path):
    (tmp_path / "syntax.py").write_text("def make(:\n")
    started = {env: join(tmp_path, env, number) for number, env in enumerate(BROKEN)}
    for env, why in BROKEN.items():
        printed, errors = started[env].communicate(timeout=PATIENCE)
        (line,) = errors.strip().splitlines()
        assert (started[env].returncode, why in line) == (2, True), (env, errors)
        assert "greeting" not in printed, "it did not connect"


@pytest.mark.federation
def test_environments_that_are_merely_odd_go_on(tmp_path):
    started = {name: join(tmp_path, f"{FILE}:{name}", number, subprocess.DEVNULL) for number, name in enumerate(WORKING)}
    for name, process in started.items():
        for line in process.stdout:
            if "waiting: " in line:
                break
        assert process.poll() is None, name
        process.terminate()
        assert process.wait(PATIENCE) == 130


@pytest.mark.parametrize("env", [env for env in BROKEN if env.startswith(FILE)], ids=lambda env: env.rpartition(":")[2])
def test_a_trial_says_what_is_wrong(monkeypatch, env):
    monkeypatch.setattr(trial, "SECONDS", 5.0 if "NeverEnds" not in env else 0.3)
    with pytest.raises(UserError) as found:
        try_environment(env, 0, None, {})
    assert BROKEN[env] in str(found.value)


def test_an_environment_of_ours_may_take_its_time_to_compile(monkeypatch):
    """On a busy machine that has taken more than a minute; it cannot hang."""
    monkeypatch.setattr(trial, "SECONDS", 0.0)
    assert try_environment("cartpole", 0, None, {}).observation_space
    with pytest.raises(UserError, match="hangs"):
        try_environment(f"{FILE}:NeverEnds", 0, None, {})


@pytest.mark.parametrize("env", ["cartpole", "random-mdp", f"{FILE}:Forks", "hopper"])
def test_a_trial_of_what_works_gives_the_environment(env):
    assert try_environment(env, 2, None, {}).observation_space

"""Without an extra: one line that says which to install."""

from __future__ import annotations

import sys

import pytest

import fedpg.envs.mujoco
from fedpg.cli import main


@pytest.mark.parametrize(
    ("missing", "env", "message"),
    [
        ("mujoco", "halfcheetah", "halfcheetah needs MuJoCo: pip install 'fedpg[mujoco]'"),
        ("gymnasium", "gym:Pendulum-v1", "gym:Pendulum-v1 needs Gymnasium: pip install 'fedpg[gym]'"),
    ],
)
def test_a_missing_extra_is_named(missing, env, message, monkeypatch, capsys, tmp_path):
    for name in ("models", "batch"):  # they import MuJoCo; an earlier test may have imported them
        monkeypatch.delitem(sys.modules, f"fedpg.envs.mujoco.{name}", raising=False)
        monkeypatch.delattr(fedpg.envs.mujoco, name, raising=False)  # `from package import module` looks here first
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["train", "--env", env, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0
    assert message in said
    assert not (tmp_path / "run").exists()

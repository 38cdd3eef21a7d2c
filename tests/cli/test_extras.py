"""Without an extra: one line that says which to install."""

from __future__ import annotations

import sys

import pytest

from fedpg.cli import main


@pytest.mark.parametrize(
    ("missing", "env", "message"),
    [
        ("mujoco", "halfcheetah", "halfcheetah needs MuJoCo: pip install 'fedpg[mujoco]'"),
        ("gymnasium", "gym:Pendulum-v1", "gym:Pendulum-v1 needs Gymnasium: pip install 'fedpg[gym]'"),
    ],
)
def test_a_missing_extra_is_named(missing, env, message, monkeypatch, capsys, tmp_path):
    ours = {f"fedpg.envs.mujoco.{name}" for name in ("models", "fleet", "batch", "mjx")}  # they import MuJoCo when imported
    for name in [name for name in sys.modules if name.split(".")[0] == missing or name in ours]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["train", "--env", env, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0
    assert message in said
    assert not (tmp_path / "run").exists()

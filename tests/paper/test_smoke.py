"""`fedpg reproduce all --scale smoke`, one experiment at a time so that two workers share them."""

from __future__ import annotations

import pytest

from fedpg.cli import main
from fedpg.paper import catalogue
from fedpg.paper.outcome import load


@pytest.mark.parametrize("name", catalogue.EXPERIMENTS)
def test_every_experiment_runs_small(name, tmp_path, capsys):
    assert main(["reproduce", name, "--scale", "smoke", "--out", str(tmp_path)]) == 0
    outcome = load(tmp_path / f"{name}.json")
    assert (outcome.name, outcome.scale) == (name, "smoke")
    assert outcome.rows
    assert outcome.notes
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert outcome.title in capsys.readouterr().out.replace("\n", " ")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.json", f"{name}.png"], "no parts are left"

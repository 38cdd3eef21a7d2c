"""`fedpg reproduce`: the contract of the verb, on an experiment that takes no time."""

from __future__ import annotations

import importlib
import json

import pytest

from fedpg.cli import main
from fedpg.paper import catalogue
from fedpg.paper.outcome import Outcome, Row
from fedpg.report.figures import Line, Panel


@pytest.fixture
def quick(monkeypatch):
    def run(name, scale, tell):
        tell("counting", 0.5)
        rows = [Row("cell", 7.9, 7.8, 8.0, 24, published=8.013, published_error=0.07, verdict="agrees (1.6 se)")]
        return Outcome(
            name, f"About {name}", scale, {}, rows, ["not everything reproduces"], [Panel("p", "x", "y", [Line("a", [1, 2], [1, 2])])]
        )

    monkeypatch.setattr(catalogue, "run", run)


def test_it_prints_published_and_ours_and_saves_numbers_and_picture(quick, tmp_path, capsys):
    assert main(["reproduce", "table-2", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for part in ("8.013 ± 0.07", "7.9", "7.8 to 8", "24", "agrees", "not everything reproduces", "table-2.json", "table-2.png"):
        assert part in said
    assert json.loads((tmp_path / "table-2.json").read_text())["rows"][0]["published"] == 8.013
    assert (tmp_path / "table-2.png").stat().st_size > 1000


def test_all_runs_every_experiment(quick, tmp_path):
    assert main(["reproduce", "all", "--out", str(tmp_path)]) == 0
    assert sorted(path.stem for path in tmp_path.glob("*.json")) == sorted(catalogue.EXPERIMENTS)


@pytest.mark.parametrize(("argv", "says"), [(["tabel-2"], "did you mean 'table-2'"), (["table-2", "--scale", "huge"], "unknown scale")])
def test_mistakes_are_one_line(argv, says, capsys):
    assert main(["reproduce", *argv]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert len(said.splitlines()) == 1


def test_help_names_every_experiment(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in (*catalogue.EXPERIMENTS, "smoke", "full", "all"))


@pytest.mark.parametrize("name", catalogue.EXPERIMENTS)
def test_every_experiment_has_a_module(name):
    assert callable(importlib.import_module(f"fedpg.paper.{name.replace('-', '_')}").run)

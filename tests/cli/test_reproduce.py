"""`fedpg reproduce`: the contract of the verb, on an experiment that takes no time."""

import importlib
import inspect
import json

import numpy as np
import pytest

from fedpg import paper
from fedpg.cli import main
from fedpg.paper.results import Figure, Plot, Result, row
from fedpg.paper.verdict import Verdict
from fedpg.report.statistics import estimate


@pytest.fixture
def quick(monkeypatch):
    def run(name, scale, tell):
        tell("counting", 0.5)
        found, verdict = estimate(np.linspace(7.8, 8.0, 24)), Verdict("holds", "agrees", 8.013, 3.0, 0.07)
        rows = [row("objective", found, method=method, published=8.013, error=0.07, verdict=verdict) for method in ("PAvg", "MFPO")]
        return Result(name=name, title=f"About {name}", scale=scale, rows=rows, notes=["seeds failed"])

    plots = [Plot(title="p", quantity="objective", names="method", series=())]
    monkeypatch.setattr(paper, "run", run)
    monkeypatch.setattr(paper, "figures", lambda result: [Figure(plots=plots, rows=result.rows)])


def test_it_prints_published_and_ours_and_saves_numbers_and_figure(quick, tmp_path, capsys):
    assert main(["reproduce", "table-2", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for part in ("8.013 ± 0.07", "7.9", "24", "agrees (1.6 of at most 3 errors)", "- seeds failed", "table-2.json", "table-2.png"):
        assert part in said
    assert json.loads((tmp_path / "table-2.json").read_text())["rows"][0]["published"] == 8.013
    assert (tmp_path / "table-2.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "table-2.svg").read_text()


def test_all_runs_every_experiment(quick, monkeypatch, tmp_path):
    monkeypatch.setattr(paper, "figures", lambda result: [])
    assert main(["reproduce", "all", "--out", str(tmp_path)]) == 0
    assert sorted(path.stem for path in tmp_path.glob("*.json")) == sorted(paper.EXPERIMENTS)


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
    assert all(name in said for name in (*paper.EXPERIMENTS, "smoke", "full", "all"))


def test_the_names_are_a_contract():
    """Of the command line: none may go."""
    assert set(paper.EXPERIMENTS) == {
        "table-1",
        "table-2",
        "table-3",
        "figure-1",
        "figure-2",
        "speedup",
        "complexity",
        "drift",
        "held-out",
        "held-out-control",
        "personal",
        "arena",
        "attacks",
        "cartpole",
        "peers",
        "privacy",
    }


@pytest.mark.parametrize("name", paper.EXPERIMENTS)
def test_every_scale_fits_its_experiment(name):
    module = importlib.import_module(f"fedpg.paper.{name.replace('-', '_')}")
    assert isinstance(module.TITLE, str)
    for scale in paper.SCALES:
        inspect.signature(module.run).bind(None, **module.SCALES[scale])


def test_a_run_records_its_sizes(monkeypatch):
    module = importlib.import_module("fedpg.paper.table_2")
    monkeypatch.setattr(module, "run", lambda tell, seeds, kappas: Result(settings={"local_lr": 0.05}))
    found = paper.run("table-2", "smoke", lambda what, share: None)
    assert (found.name, found.title, found.scale) == ("table-2", module.TITLE, "smoke")
    assert found.settings == {"seeds": 12, "kappas": (1.0,), "local_lr": 0.05}

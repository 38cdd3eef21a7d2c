"""`fedpg reproduce all --scale smoke`, one experiment at a time, and numbers that must come out even there."""

import pytest

from fedpg import paper
from fedpg.cli import main
from fedpg.paper.results import Row, load, select


def outcome(rows: list[Row], **where) -> set[str]:
    return {row.verdict.outcome for row in select(rows, **where) if row.verdict}


KNOWN = {
    "table-2": lambda rows: outcome(rows, quantity="objective", method="heavy ball") == {"holds"},
    "drift": lambda rows: outcome(rows, quantity=["exponent in eta K", "gradient at rest"]) == {"holds"},
    "held-out": lambda rows: "fails" not in outcome(rows, quantity="best objective"),
    "speedup": lambda rows: "fails" not in outcome(rows, method="FedSVRPG-M"),
    "complexity": lambda rows: "fails" not in outcome(rows, method="FedSVRPG-M, bold"),
    "attacks": lambda rows: outcome(rows, quantity="share left", method="PAvg, mean") == {"fails", "holds"},
    "table-1": lambda rows: select(rows, quantity="floor", method="Fast-FedPG", against="")[0].verdict.outcome == "holds",
    "arena": lambda rows: select(rows, method="CALM", task="conflict MDPs", quantity="chance")[0].mean > 0.5,
}
"""What the theory or the attack makes certain."""


@pytest.mark.slow
@pytest.mark.parametrize("name", paper.EXPERIMENTS)
def test_every_experiment_runs_small(name, tmp_path, capsys):
    assert main(["reproduce", name, "--scale", "smoke", "--out", str(tmp_path)]) == 0
    result = load(tmp_path / f"{name}.json")
    assert (result.name, result.scale) == (name, "smoke")
    assert result.rows
    assert KNOWN.get(name, bool)(result.rows)
    assert result.title in capsys.readouterr().out.replace("\n", " ")
    files = sorted(path.name for path in tmp_path.iterdir())
    assert f"{name}.json" in files
    assert len([file for file in files if file.endswith(".png")]) == len([file for file in files if file.endswith(".svg")]) > 0
    assert all(file.startswith(name) and file.endswith((".json", ".png", ".svg")) for file in files), "no parts are left"

"""`fedpg theory`: the table, the JSON object and what bad input gets."""

from __future__ import annotations

import json

import pytest

from fedpg.cli.theory import main
from fedpg.errors import UserError
from fedpg.theory import Constants, prescribe


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """The same terminal for everyone, so that no row is folded."""
    monkeypatch.setenv("COLUMNS", "120")


def test_table_has_every_number_and_names_the_errata(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    p = prescribe(Constants())
    for name, value in [("Lbar", p.smoothness), ("beta", p.beta), ("lambda", p.global_lr), ("eta", p.local_lr), ("bound", p.bound)]:
        row = next(line for line in out.splitlines() if line.split("│")[1:2] and line.split("│")[1].strip() == name)
        assert f"{value:.4g}" in row
    assert out.count("eta <=") == 6
    assert "lemma-first-steps (binds)" in out
    assert "Errata applied: discount-name, first-steps-condition, drift-conditions, off-policy-variance" in out
    assert "Lhat" not in out


def test_fedhapg_m_shows_its_own_constants(capsys):
    assert main(["--algorithm", "fedhapg-m"]) == 0
    out = capsys.readouterr().out
    assert "Lhat" in out
    assert "Lbar" not in out
    assert "L4-reward" in out


def test_json_is_one_object_with_the_same_numbers(capsys):
    flags = "--G 1 --M 1 --W 1 --sigma 1 --horizon 2 --discount 0.5 --agents 2 --local-steps 4 --rounds 10 --r-max 1 --delta 2 --g0 3"
    assert main([*flags.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    p = prescribe(Constants(1.0, 1.0, 1.0, 1.0, 2, 0.5, 1.0, 2, 4, 10, 2.0, 3.0))
    assert found["smoothness"]["L"] == 12.0
    assert found["smoothness"]["Lbar"] == p.smoothness == pytest.approx(7920**0.5)
    assert (found["beta"], found["global_lr"], found["local_lr"], found["B"]) == (p.beta, p.global_lr, p.local_lr, p.B)
    assert found["bound"] == p.bound == found["bound_noise"] + found["bound_start"]
    assert found["conditions"][found["binding"]] == found["local_lr"] == min(found["conditions"].values())
    assert (found["constants"]["delta"], found["constants"]["g0"]) == (2.0, 3.0)
    assert "off-policy-variance" in found["errata"]


@pytest.mark.parametrize("flags", [["--discount", "1"], ["--rounds", "0"], ["--sigma", "nan"], ["--algorithm", "pavg"]])
def test_bad_values_reach_the_caller_as_one_line(flags, capsys):
    with pytest.raises(UserError) as caught:
        main(flags)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


def test_help_names_every_field(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert all(f"--{name}" in out for name in ("G", "M", "W", "sigma", "horizon", "discount", "r-max", "agents", "local-steps", "rounds"))

"""The command line as a person meets it: one clear line for a mistake, exit 2, nothing harmed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from fedpg.cli import VERBS, main

TINY = ["--env", "random-mdp", "--agents", "2", "--rounds", "2", "--local-steps", "1", "--horizon", "3", "--eval-every", "1"]


def test_help_lists_the_verbs_without_waiting_for_jax():
    code = "import sys; from fedpg.cli import main; main(['--help']); sys.exit('jax' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(verb in shown for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    assert f"fedpg {verb}" in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_answers_a_misspelt_flag_with_the_nearest_one(verb, capsys):
    for word in ("--hepl", "--hepl=3"):
        assert main([verb, word]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err == f"fedpg: unknown flag --hepl: did you mean '--help'? fedpg {verb} --help explains every flag\n"


@pytest.mark.parametrize(("verb", "wrong", "right"), [("theory", "--agnts", "--agents"), ("train", "--locl_lr", "--local-lr")])
def test_the_nearest_flag_is_named(verb, wrong, right, capsys):
    assert main([verb, wrong, "3"]) == 2
    assert f"did you mean '{right}'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "unknown verb 'trian': did you mean 'train'?"),
        (["train", "--env", "cartpol"], "unknown env 'cartpol': did you mean 'cartpole'?"),
        (["train", "--algorithm", "fedsvrgp-m"], "unknown algorithm 'fedsvrgp-m': did you mean 'fedsvrpg-m'?"),
        (["train", "--beta", "0"], "beta must be float > 0.0, not 0.0"),
        (["train", "--local-steps", "0"], "local-steps must be int >= 1, not 0"),
        (["train", "--agents", "many"], "Error parsing --agents: invalid literal for int() with base 10: 'many' (fedpg train --help"),
        (["train", "--agents"], "Missing value for argument '--agents'"),
        (["train", "--agents", "3", "4"], "Unrecognized options: 4"),
        (["train", "--hidden", "64,x"], "Error parsing --hidden"),
        (["train", "--env-option", "length"], "Error parsing --env-option: option 'length' must be NAME=VALUE"),
        (["train", "--resume"], "to resume, give the folder of the run: --out"),
        (["train", "--resume", "--out", "nowhere"], "no run to resume in nowhere"),
        (["train", "--config", "none.toml"], "no configuration file at none.toml"),
        (["train", "--env", "random-mdp", "--agents", "2", "--env-option", "states=[4,5]"], "option states of random-mdp"),
        (["theory", "--discount", "1.0"], "discount must be in [0, 1)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line_and_exit_two(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("fedpg: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert list(tmp_path.rglob("*.*")) == []


def test_a_toml_with_an_unknown_key(capsys, tmp_path):
    (tmp_path / "c.toml").write_text("local-lrr = 0.1\n")
    assert main(["train", "--config", str(tmp_path / "c.toml")]) == 2
    assert "'local-lrr': did you mean 'local-lr'?" in capsys.readouterr().err


def test_flags_win_over_the_file_and_the_folder_tells_what_ran(capsys, tmp_path):
    (tmp_path / "c.toml").write_text('env = "random-mdp"\nagents = 4\nbeta = 0.5\nlocal-steps = 1\nhorizon = 3\nrounds = 2\n')
    out = tmp_path / "run"
    assert main(["train", "--config", str(tmp_path / "c.toml"), "--agents", "2", "--seeds", "2", "--out", str(out)]) == 0
    written = (out / "config.toml").read_text()
    assert "agents = 2\n" in written
    assert "beta = 0.5\n" in written
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["round"] == 2
    assert {"round", "env_steps", "seconds", "return", "objective", "grad_norm_sq"} <= set(rows[-1])
    shown = capsys.readouterr().out
    assert "round 2: return" in shown
    assert "lowest and highest seed" in shown


def test_another_run_in_the_folder_is_left_alone(capsys, tmp_path):
    out = tmp_path / "run"
    assert main(["train", *TINY, "--out", str(out)]) == 0
    before = (out / "metrics.jsonl").read_bytes()
    assert main(["train", *TINY, "--out", str(out)]) == 2
    assert "holds a run already: add --resume" in capsys.readouterr().err
    assert main(["train", "--resume", "--out", str(out), "--beta", "0.7"]) == 2
    assert "cannot resume: the run has beta 0.2, not 0.7" in capsys.readouterr().err
    assert (out / "metrics.jsonl").read_bytes() == before
    assert main(["train", "--resume", "--out", str(out), "--rounds", "3"]) == 0
    assert (out / "metrics.jsonl").read_bytes().startswith(before)


def test_an_error_in_the_plain_engine_names_its_stage(capsys, tmp_path, monkeypatch):
    from fedpg import rounds

    def refuse(*arguments, **constants):
        raise ArithmeticError("broken on purpose")

    monkeypatch.setattr(rounds, "settle", refuse)
    assert main(["train", *TINY, "--engine", "plain", "--algorithm", "pavg", "--out", str(tmp_path / "run")]) == 2
    assert "seed 0, round 0, aggregate: ArithmeticError: broken on purpose" in capsys.readouterr().err


def test_doctor_tells_what_is_there_and_what_is_missing(capsys, monkeypatch):
    import jax

    from fedpg.runs import folder

    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["packages"][""]["jax"] == jax.__version__
    assert found["devices"]
    assert found["kernels"]["cpu"] is None
    assert found["cache"]["folder"] == os.environ["JAX_COMPILATION_CACHE_DIR"]
    for missing, command, code in (("matplotlib", "pip install 'fedpg[plot]'", 0), ("numpy", "pip install fedpg\n", 1)):
        monkeypatch.setattr(folder, "version", lambda name, missing=missing: None if name == missing else "1.0")
        assert main(["doctor"]) == code
        shown = capsys.readouterr().out
        assert f"{missing} MISSING" in shown
        assert f"MB in {found['cache']['folder']}" in shown
        assert "kernels for finite MDPs, cpu: used\n" in shown
        assert command in shown

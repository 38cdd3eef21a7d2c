"""Sweeps: every setting is the run that `fedpg train` makes of it."""

from __future__ import annotations

import itertools
import json

import jax
import numpy as np
import pytest

from fedpg.cli import main
from fedpg.report.statistics import estimate
from fedpg.runs.config import Config
from fedpg.runs.setup import build, resolve
from fedpg.runs.sweep import curves, sweep, sweep_all
from fedpg.runs.training import train
from helpers import own_algorithm

SMALL = {
    "env": "random-mdp",
    "algorithm": "fedavg-m",
    "agents": 2,
    "rounds": 4,
    "local_steps": 2,
    "horizon": 5,
    "seeds": 3,
    "eval_every": 2,
}


@pytest.mark.slow
def test_a_setting_is_the_run_that_train_makes_of_it(tmp_path):
    configs = [resolve(Config(**SMALL, local_lr=local_lr, beta=beta)) for local_lr, beta in itertools.product((0.05, 0.5), (0.2, 0.9))]
    ((numbers, found),) = sweep_all(configs)
    assert numbers == [0, 1, 2, 3]
    assert found.returns.shape == (4, 3, 3, 2)
    for number in (0, 3):
        rows = train(configs[number], out=tmp_path / str(number)).rows
        for name, array in (("return", found.returns.mean(-1)), ("grad_norm_sq", found.grad_norm_sq), ("env_steps", found.env_steps)):
            expected = np.array([row[f"{name}_per_seed"] for row in rows]).T
            np.testing.assert_allclose(array[number], expected, rtol=1e-4, err_msg=name)
    assert not np.allclose(found.returns[0], found.returns[3], rtol=1e-3)


def test_what_shapes_a_program_is_one_program_per_value():
    configs = [resolve(Config(**SMALL | {"rounds": 1, "local_steps": steps}, local_lr=lr)) for steps, lr in ((1, 0.1), (2, 0.1), (1, 0.2))]
    assert [numbers for numbers, _ in sweep_all(configs)] == [[0, 2], [1]]


def test_an_own_algorithm_that_must_know_its_step_size_is_one_program_per_value(tmp_path):
    """As a built-in one would be: the first attempt, with a traced step-size, is not an error of the user's."""
    file = tmp_path / "picky.py"
    file.write_text(
        "from fedpg import pavg\n\ndef picky(problem, *, local_lr):\n    return pavg(problem, local_lr=local_lr if local_lr < 1 else 1.0)\n"
    )
    configs = [resolve(Config(**SMALL | {"algorithm": f"{file}:picky", "rounds": 1}, local_lr=lr)) for lr in (0.1, 0.2)]
    assert [numbers for numbers, _ in sweep_all(configs)] == [[0], [1]]


def test_the_warm_up_is_counted_and_a_budget_of_steps_ends_it():
    config = resolve(Config(**SMALL | {"algorithm": "fedsvrpg-m", "u0": 3, "rounds": 20}))
    sim = build(config)
    found = curves(sim, jax.random.key(0), [2, 4, 6, 20], steps=150)
    # 3 batches of u_0, then 2 local steps a round, for each of 2 agents, 5 steps each
    assert found.env_steps[0, 0].tolist() == [2 * 5 * (3 + 2 * rounds) for rounds in (2, 4, 6)]
    assert found.rounds.tolist() == [2, 4, 6]
    assert np.all((found.ess > 0) & (found.ess <= 1))


def test_a_failed_seed_is_nan_from_then_on():
    found = sweep(resolve(Config(**SMALL | {"algorithm": "pavg"})), {"local_lr": [0.1, np.inf]})
    assert found.failed[0].tolist() == [-1, -1, -1]
    assert (found.failed[1] >= 0).all()
    assert np.isfinite(found.returns[0]).all()
    assert np.isnan(found.returns[1, :, -1]).all()


def test_the_verb_prints_a_table_and_writes_a_line_per_setting(tmp_path, capsys):
    out, own = tmp_path / "sweep", f"{own_algorithm.__file__}:signed"
    small = ["--env", "random-mdp", "--agents", "2", "--rounds", "2", "--local-steps=1", "--horizon", "3", "--seeds", "3"]
    assert main(["sweep", *small, "--algorithm", f"pavg,{own}", "--local-lr=0.05,0.5", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [line["setting"] for line in lines] == [{"algorithm": a, "local_lr": lr} for a in ("pavg", own) for lr in (0.05, 0.5)]
    for line in lines:
        final = estimate(np.array(line["return_per_seed"])[:, -1])
        assert (line["return"], line["low"], line["high"]) == pytest.approx((final.mean, final.low, final.high), rel=1e-5)
        assert f"{line['return']:.4g}" in printed
        assert resolve(Config(**line["config"] | {"track": ()})).local_lr == line["setting"]["local_lr"]
    best = max(lines, key=lambda line: line["return"])
    assert f"best: --algorithm {best['setting']['algorithm']} --local-lr {best['setting']['local_lr']}." in printed.replace("\n", "")
    assert main(["sweep", *small, "--out", str(out)]) == 2
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize("given", [["--local-lr", "0.1,x"], ["--beta", "0.1,2"], ["--locl-lr", "0.1,0.2"]])
def test_a_mistake_in_a_list_is_one_line(given, tmp_path, capsys):
    assert main(["sweep", "--env", "random-mdp", "--out", str(tmp_path / "x"), *given]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert given[0].removeprefix("--") in captured.err
    assert not (tmp_path / "x").exists()

"""Runs in which a share of the agents takes part: written down, rerun and resumed bit for bit, refused in one line."""

from __future__ import annotations

import dataclasses

import pytest

from fedpg.cli import main
from fedpg.errors import UserError
from fedpg.runs import config as configs
from fedpg.runs.config import Config
from fedpg.runs.setup import resolve
from fedpg.runs.training import train
from helpers.runs import assert_same_run

PARTIAL = Config(
    env="random-mdp", algorithm="scaffold", agents=5, rounds=4, local_steps=1, horizon=4, seeds=2, eval_every=2,
    participation=0.4, selection="csh-max", candidates=0.8,
)  # fmt: skip


def test_a_run_with_a_share_of_the_agents_is_resumed_bit_for_bit(tmp_path):
    run = train(PARTIAL, tmp_path / "whole")
    stored = Config(**configs.read(tmp_path / "whole" / "config.toml"))
    assert (stored.participation, stored.selection, stored.candidates) == (0.4, "csh-max", 0.8)
    assert resolve(stored) == run.config
    train(dataclasses.replace(stored, rounds=2), tmp_path / "resumed")
    train(stored, tmp_path / "resumed", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "resumed")
    last = run.rows[-1]
    assert last["trajectories_per_seed"] == [4 * 2 * 1 * run.config.batch] * 2  # rounds, participants, local steps
    assert last["floats_up_per_seed"] == [4 * (2 * 2 * 25 + 4 * 25)] * 2  # two vectors of 25 up, four tables of 25
    with pytest.raises(UserError, match=r"cannot resume: the run has participation 0.4, not 0.6"):
        train(dataclasses.replace(stored, participation=0.6), tmp_path / "resumed", resume=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--participation", "0"], "participation is a share of the agents: give a number above 0 and at most 1, not 0.0"),
        (["--selection", "csh-max"], "selection csh-max has nothing to choose: give a --participation below 1"),
        (["--participation", "0.5", "--selection", "nobody"], "unknown selection 'nobody'"),
        (["--participation", "0.5", "--selection", "csh-min"], "selection csh-min compares tables over states and actions"),
        (["--participation", "0.5", "--algorithm", "pooled"], "pooled trains in one place, where nobody is absent"),
        (["--algorithm", "fapi"], "fapi improves the whole table of a finite MDP: use --env random-mdp or conflict"),
    ],
)
def test_what_makes_no_sense_gets_one_line_and_writes_nothing(given, said, tmp_path, capsys):
    code = main(["train", "--env", "cartpole", "--out", str(tmp_path / "run"), *given])
    told = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert len(told) == 1
    assert said in told[0]
    assert not (tmp_path / "run").exists()

"""The training loop: rows, resume bit for bit, kills, Ctrl-C, failed seeds."""

from __future__ import annotations

import dataclasses
import json
import signal

import numpy as np
import pytest

from fedpg.algorithms import ALGORITHMS
from fedpg.errors import UserError
from fedpg.runs import checkpoint
from fedpg.runs.config import Config
from fedpg.runs.setup import build
from fedpg.runs.training import train
from helpers.federations import EXACT, SELDOM, each
from helpers.runs import assert_same_run, kill_and_compare, start, wait_for_rows

SMALL = Config(env="random-mdp", agents=2, rounds=6, local_steps=2, horizon=5, seeds=3, eval_every=2)
BATCHES = {"nharpg": 2 * 2 * 2, "fast-fedpg": 2 * 2 + 2, "fedpg-br": 2 * 2 + 1} | dict.fromkeys(EXACT, 0)
"""Batches in a round, where they are not local steps times agents: two per step, one before them, one of the server's own, none."""
WEIGHTED = ("fedsvrpg-m", "fedhapg-m", "authors-svrpg", "authors-hapg", "mfpo", "fedpg-br")


@pytest.mark.parametrize("algorithm", each(ALGORITHMS, (*SELDOM, "pavg-projected")))
def test_rows_have_what_they_promise(algorithm, tmp_path):
    run = train(dataclasses.replace(SMALL, algorithm=algorithm), tmp_path / "run")
    assert [row["round"] for row in run.rows] == [0, 2, 4, 6]
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    for name in ("return", "objective", "env_steps", "grad_norm_sq", "trajectories", "spread", "floats_up", "floats_down"):
        assert last[name] == pytest.approx(np.mean(last[f"{name}_per_seed"]), rel=1e-5)
        assert len(last[f"{name}_per_seed"]) == 3
    u0 = int(run.config.u0) * SMALL.agents
    assert last["trajectories_per_seed"] == [6 * BATCHES.get(algorithm, 2 * 2) + u0] * 3  # rounds x local steps x agents
    assert last["env_steps"] == last["trajectories"] * SMALL.horizon
    assert len(last["return_per_agent"]) == 2
    assert (last["ess"] is None) == (algorithm not in WEIGHTED)


def test_the_written_configuration_reruns_the_run(tmp_path):
    from fedpg.runs import config as configs

    train(SMALL, tmp_path / "one")
    train(Config(**configs.read(tmp_path / "one" / "config.toml")), tmp_path / "two")
    assert_same_run(tmp_path / "one", tmp_path / "two")


def test_a_longer_run_goes_on_where_the_shorter_ended(tmp_path):
    train(dataclasses.replace(SMALL, u0="3"), tmp_path / "short")
    train(dataclasses.replace(SMALL, u0="3", rounds=10), tmp_path / "short", resume=True)
    train(dataclasses.replace(SMALL, u0="3", rounds=10), tmp_path / "long")
    assert_same_run(tmp_path / "short", tmp_path / "long")


def test_resume_refuses_another_configuration_and_harms_nothing(tmp_path):
    train(SMALL, tmp_path / "run")
    before = {path: path.read_bytes() for path in sorted((tmp_path / "run").rglob("*")) if path.is_file()}
    others = (
        ({"beta": 0.9}, "the run has beta 0.2, not 0.9"),
        ({"rounds": 3}, "has 6 rounds, more than 3"),
        ({"u0": "77"}, "the run has u0 0, not 77"),
    )
    for other, message in others:
        with pytest.raises(UserError, match=message):
            train(dataclasses.replace(SMALL, **other), tmp_path / "run", resume=True)
    with pytest.raises(UserError, match="holds a run already"):
        train(SMALL, tmp_path / "run")
    assert before == {path: path.read_bytes() for path in before}


def test_a_truncated_checkpoint_harms_nothing(tmp_path):
    train(SMALL, tmp_path / "run")
    path = tmp_path / "run" / "checkpoint" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    before = {p: p.read_bytes() for p in (path, tmp_path / "run" / "metrics.jsonl", tmp_path / "run" / "config.toml")}
    with pytest.raises(UserError, match="is damaged"):
        train(dataclasses.replace(SMALL, rounds=10), tmp_path / "run", resume=True)
    assert before == {p: p.read_bytes() for p in before}


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path):
    train(SMALL, tmp_path / "whole")
    train(SMALL, tmp_path / "run")
    (tmp_path / "run" / "checkpoint" / "state.safetensors").unlink()
    train(SMALL, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def poisoned(seeds):
    """An engine in which the rewards of some seeds are NaN."""

    def make_engine(config):
        engine = build(config)
        agents = engine._agents[0]
        engine._agents[0] = agents._replace(reward=agents.reward.at[seeds].set(np.nan))
        return engine

    return make_engine


def test_failed_seeds_are_recorded_and_the_rest_goes_on(tmp_path):
    """A reward that is not a number in some seeds: null in their place, named in failed_seeds, means over the others."""
    last = train(SMALL, tmp_path / "run", make_engine=poisoned(seeds=1)).rows[-1]
    assert last["failed_seeds"] == {"1": 0}
    assert last["return_per_seed"][1] is None
    assert last["return"] == pytest.approx(np.mean([last["return_per_seed"][i] for i in (0, 2)]), rel=1e-5)


def test_if_every_seed_fails_it_stops_saved_with_the_reason(tmp_path):
    with pytest.raises(UserError, match=r"every seed failed .* try a smaller --local-lr"):
        train(SMALL, tmp_path / "run", make_engine=poisoned(seeds=slice(None)))
    assert (tmp_path / "run" / "checkpoint" / "state.safetensors").exists()


ARGUMENTS = ["--env", "random-mdp", "--agents", "3", "--rounds", "4000", "--local-steps", "4", "--horizon", "10", "--seeds", "4"]
ARGUMENTS += ["--eval-every", "100"]


def test_kill_nine_at_any_moment_then_resume_is_bit_for_bit(tmp_path):
    kill_and_compare(tmp_path, ARGUMENTS, rows=(1, 8))


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    process = start(tmp_path / "run", *ARGUMENTS, "--rounds", "100000")
    wait_for_rows(tmp_path / "run", 2, process)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped and saved after" in output
    assert f"fedpg train --resume --out {tmp_path / 'run'}" in output
    _, about = checkpoint.read(tmp_path / "run" / "checkpoint" / "state.safetensors")
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert about["round"] >= json.loads(rows[-1])["round"] >= 100

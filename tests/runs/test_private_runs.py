"""Runs with compressed and private messages: written down, resumed bit for bit, their epsilon in every line, refused in one line."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedpg import simulate as simulator
from fedpg.algorithms.wrappers import compression, privacy
from fedpg.cli import main
from fedpg.runs import config as configs
from fedpg.runs.config import Config
from fedpg.runs.setup import build, plan, resolve
from fedpg.runs.training import train
from fedpg.theory.privacy import epsilon
from helpers.runs import assert_same_run, final_arrays

PRIVATE = Config(
    env="random-mdp", algorithm="fast-fedpg", agents=2, rounds=2, local_steps=1, horizon=3, eval_every=1,
    clip=0.5, noise=4.0, privacy_delta=1e-4, compression="top-k", keep=0.3,
)  # fmt: skip


@pytest.fixture(autouse=True)
def compile_quickly(monkeypatch):
    monkeypatch.setattr(simulator, "COMPILER_OPTIONS", {"cpu": {"xla_backend_optimization_level": 0}})


def test_a_private_run_is_resumed_bit_for_bit_and_says_what_it_gave_away(tmp_path):
    run = train(PRIVATE, tmp_path / "whole")
    stored = Config(**configs.read(tmp_path / "whole" / "config.toml"))
    assert resolve(stored) == run.config
    assert (stored.clip, stored.noise, stored.privacy_delta, stored.compression, stored.keep) == (0.5, 4.0, 1e-4, "top-k", 0.3)
    train(dataclasses.replace(stored, rounds=1), tmp_path / "resumed")
    train(stored, tmp_path / "resumed", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "resumed")
    assert [row["epsilon"] for row in run.rows] == [epsilon(4.0, 2 * rounds, 1e-4) if rounds else 0.0 for rounds in (0, 1, 2)]
    assert run.rows[-1]["floats_up_per_seed"] == [2 * 2 * 2 * (8 + 8)]  # rounds, agents, exchanges, ceil(0.3 * 25) places and values
    arrays = final_arrays(tmp_path / "whole")
    assert arrays["state.agents.inner.dice"].dtype == np.uint32
    assert np.abs(arrays["state.agents.residual[1][0]"]).max() > 0


def test_the_warm_up_is_counted_and_everything_off_is_as_it_was():
    fields = {"env": "random-mdp", "algorithm": "fedsvrpg-m", "horizon": 4, "agents": 2, "rounds": 3, "local_steps": 2}
    assert build(resolve(Config(**fields, clip=1.0, noise=1.0))).traffic.messages(5) == 1 + 5
    asked = plan(resolve(Config(**fields)))
    state = asked.algorithm_of({}).init(asked.problem.init_params(None))[1]
    assert not isinstance(state, (compression.AgentState, privacy.AgentState))
    # fedpg-br has a delta of its own, which is an option of the algorithm and not this one
    own = resolve(Config(env="random-mdp", algorithm="fedpg-br", algorithm_option=("delta=0.5",)))
    assert own.algorithm_option == ("delta=0.5",)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--compression", "top-q"], "unknown compression 'top-q': did you mean 'top-k'?"),
        (["--keep", "1.5"], "keep is the share of entries that top-k sends: give a number above 0 and at most 1, not 1.5"),
        (["--noise", "1"], "noise is in units of --clip: give the longest message that may be sent, as --clip"),
        (["--clip", "-1"], "clip must be 0 (off) or positive and finite, not -1.0"),
        (["--privacy-delta", "0"], "privacy-delta must be between 0 and 1, not 0.0"),
        (
            ["--clip", "1", "--normalise-observations", "running"],
            "the moments of observations would travel as they are: give --normalise-ob",
        ),
        (["--clip", "1", "--normalise-observations", "auto"], "the moments of observations would travel as they are"),
        (["--clip", "1", "--algorithm", "pooled"], "pooled sends no messages: leave out --clip and --noise"),
        (["--compression", "float16", "--algorithm", "local-only"], "local-only sends no messages: leave out --compression"),
        (
            ["--clip", "1", "--noise", "1", "--participation", "0.5", "--selection", "power-of-choice"],
            "selection power-of-choice asks agents for reports, which noise does not protect: use --selection random",
        ),
    ],
)
def test_what_makes_no_sense_gets_one_line_and_writes_nothing(given, said, tmp_path, capsys):
    code = main(["train", "--env", "cartpole", "--out", str(tmp_path / "run"), *given])
    told = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert len(told) == 1
    assert said in told[0]
    assert not (tmp_path / "run").exists()

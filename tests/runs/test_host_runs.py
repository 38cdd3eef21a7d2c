"""Whole runs with environments in Python: killed and resumed, and with environments that fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedpg.errors import UserError
from fedpg.runs.config import Config
from fedpg.runs.progress import Silent
from fedpg.runs.training import train
from helpers.runs import assert_same_run, kill_and_compare

ROOT = Path(__file__).parents[2]
SHORT = ["--rounds", "8", "--local-steps", "2", "--batch", "2", "--eval-every", "1", "--eval-episodes", "2", "--agents", "2"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--env", "gym:LunarLander-v3", "--horizon", "60", *SHORT, "--env-option", "gravity=[-10.0,-6.0]"],
        pytest.param(
            ["--env", "gym:Pendulum-v1", "--horizon", "40", *SHORT, "--normalise-observations", "running"], marks=pytest.mark.slow
        ),
        pytest.param(
            [
                "--config",
                str(ROOT / "examples" / "thermostat.toml"),
                "--env",
                f"{ROOT}/examples/python_environment.py:make",
                "--eval-every",
                "2",
            ],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["--env", "hopper", "--horizon", "30", *SHORT, "--normalise-observations", "running", "--heterogeneity", "1"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["lunar-lander", "pendulum", "thermostat", "hopper"],
)
def test_kill_nine_then_resume_is_bit_for_bit(arguments, tmp_path):
    kill_and_compare(tmp_path, arguments, rows=(3,))


class Orders(Silent):
    """Gives the environments their orders when a round has been evaluated."""

    def __init__(self, file: Path, plan: dict[int, str]) -> None:
        self.file, self.plan = file, plan

    def evaluated(self, row) -> None:
        if row["round"] in self.plan:
            self.file.write_text(self.plan[row["round"]])


@pytest.fixture
def file(tmp_path):
    return tmp_path / "orders"


def config(file: Path, **settings) -> Config:
    options = ('name=["one","two","three"]', f'orders="{file}"')
    small = {"rounds": 6, "local_steps": 2, "batch": 2, "horizon": 5, "eval_every": 1, "eval_episodes": 2, "seeds": 2}
    return Config(env="helpers.failing_env:make", agents=3, env_option=options, **(small | settings))


def events(folder: Path) -> list[dict]:
    file = folder / "events.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.parametrize(
    ("mishap", "what"),
    [("raise", "step raised RuntimeError: boom"), ("nan", "reward is nan"), ("shape", "observation has shape (3,) where (1,) belongs")],
)
def test_a_failing_agent_is_left_out_recorded_and_comes_back(mishap, what, file, tmp_path):
    run = train(config(file), tmp_path / "run", progress=Orders(file, {2: f"two:{mishap}", 4: ""}))
    rows = {row["round"]: row for row in run.rows}
    assert run.round == 6
    assert [rows[r]["refused_per_agent"] for r in (2, 3, 4, 5)] == [[0, 0, 0], [0, 2, 0], [0, 2, 0], [0, 0, 0]]
    assert rows[3]["return_per_agent"][1] is None
    assert rows[3]["return"] is not None
    assert None not in rows[6]["return_per_agent"]
    assert rows[6]["failed_seeds"] == {}
    told = events(tmp_path / "run")
    assert {(e["agent"], e["what"]) for e in told} == {(1, what)}
    assert {(e["round"], e["during"], e["seed"]) for e in told} == {
        (r, d, s) for s in (0, 1) for r, d in ((2, "training"), (3, "evaluation"), (3, "training"), (4, "evaluation"))
    }


def test_if_all_agents_fail_it_stops_saved_and_goes_on_when_mended(file, tmp_path):
    everyone = "one:raise two:nan three:shape"
    with pytest.raises(UserError, match=r"every agent failed in round 3 \(the last was seed 1, agent .*mend it, then --resume"):
        train(config(file), tmp_path / "run", progress=Orders(file, {3: everyone}))
    assert {e["agent"] for e in events(tmp_path / "run")} == {0, 1, 2}
    file.write_text("")
    run = train(config(file), tmp_path / "run", resume=True)
    assert run.round == 6
    assert events(tmp_path / "run") == [], "the round was done again, without mishap"
    train(config(file), tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_if_all_agents_fail_before_round_0_a_resumed_run_starts_over(file, tmp_path):
    file.write_text("one:raise two:raise three:raise")
    with pytest.raises(UserError, match=r"every agent failed before round 0 \(the last was .*boom\): mend it, then --resume"):
        train(config(file, algorithm="fedsvrpg-m", u0="1"), tmp_path / "run")
    file.write_text("")
    train(config(file, algorithm="fedsvrpg-m", u0="1"), tmp_path / "run", resume=True)
    train(config(file, algorithm="fedsvrpg-m", u0="1"), tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_an_evaluation_in_which_all_agents_fail_is_done_again(file, tmp_path):
    class Break(Orders):
        """Breaks everything after the last round of training, before its evaluation."""

        def advanced(self, round) -> None:
            if round == 4:
                self.file.write_text("one:raise two:nan three:shape")

    with pytest.raises(UserError, match=r"every agent failed in round 4"):
        train(config(file, eval_every=4), tmp_path / "run", progress=Break(file, {}))
    file.write_text("")
    train(config(file, eval_every=4), tmp_path / "run", resume=True)
    train(config(file, eval_every=4), tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_the_training_return_is_that_of_the_agents_that_did_not_fail(file, tmp_path):
    """One agent of three always fails: the others' mean return, not two thirds of it."""
    file.write_text("two:raise")
    row = train(config(file, local_lr=1e-9, batch=50, eval_episodes=50), tmp_path / "run").rows[-1]
    assert row["train_return"] == pytest.approx(row["return"], rel=0.2)


def test_the_manifest_tells_every_constant_and_is_json(tmp_path):
    options = ("vary=conflict", "gravity=1.5")
    small = {"rounds": 1, "local_steps": 1, "batch": 1, "horizon": 3, "eval_episodes": 1, "u0": "0"}
    train(Config(env="hopper", agents=2, heterogeneity=1.0, env_option=options, **small), tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    agents = manifest["agents_of_seed_0"]
    assert sorted(agents["direction"]) == [-1.0, 1.0]
    assert agents["gravity"] == [1.5, 1.5]
    assert agents["target_speed"] == ["inf", "inf"]
    assert manifest["packages"]["mujoco"]

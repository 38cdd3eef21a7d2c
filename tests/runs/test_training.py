"""The training loop: rows, resume bit for bit, kills, Ctrl-C, failed seeds and failing environments."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
from pathlib import Path

import jax
import numpy as np
import pytest

from fedpg import UserError, simulate
from fedpg.runs import checkpoint, training
from fedpg.runs import config as configs
from fedpg.runs.config import Config
from fedpg.runs.progress import Progress
from fedpg.runs.setup import build, resolve
from fedpg.runs.training import train
from fedpg.theory.privacy import epsilon
from helpers import own_algorithm
from helpers.runs import assert_same_run, final_arrays, kill_and_compare, start, wait_for_rows

ROOT = Path(__file__).parents[2]
OWN = f"{own_algorithm.__file__}:signed"
SMALL = Config(env="random-mdp", algorithm="scaffold", agents=2, rounds=6, local_steps=2, horizon=5, seeds=3, eval_every=2)


@pytest.mark.parametrize(
    ("algorithm", "batches"),
    [
        ("fedsvrpg-m", 2 * 2),  # local steps x agents
        pytest.param("fast-fedpg", 2 * 2 + 2, marks=pytest.mark.slow),  # one more of each agent before them
        pytest.param("nharpg", 2 * 2 * 2, marks=pytest.mark.slow),  # two per step
        pytest.param("fedpg-br", 2 * 2 + 1, marks=pytest.mark.slow),  # one of the server's own
        pytest.param("fapi", 0, marks=pytest.mark.slow),
    ],
)
def test_rows_have_what_they_promise(algorithm, batches, tmp_path):
    run = train(SMALL, out=tmp_path / "run", algorithm=algorithm)
    assert [row["round"] for row in run.rows] == [0, 2, 4, 6]
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last == run.rows[-1]
    for name in ("return", "objective", "env_steps", "grad_norm_sq", "trajectories", "spread", "floats_up", "floats_down"):
        assert last[name] == pytest.approx(np.mean(last[f"{name}_per_seed"]), rel=1e-5)
        assert len(last[f"{name}_per_seed"]) == 3
    assert last["trajectories_per_seed"] == [6 * batches + run.config.u0 * SMALL.agents] * 3
    assert last["env_steps"] == last["trajectories"] * SMALL.horizon
    assert len(last["return_per_agent"]) == 2
    assert (last["ess"] is None) == (algorithm not in ("fedsvrpg-m", "fedpg-br"))
    assert last["events"] == 0


def test_settings_are_keywords_and_misspelt_ones_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = {"env": "random-mdp", "algorithm": OWN, "agents": 2, "rounds": 1, "local_steps": 1, "horizon": 3}
    run = train(**small, algorithm_option={"shrink": 0.5})
    assert run.config.algorithm_option == {"shrink": 0.5}
    assert run.folder.parent == Path("runs")
    assert run.folder.name.startswith("random-mdp-")
    with pytest.raises(UserError, match="unknown setting 'agnets': did you mean 'agents'"):
        train(agnets=3)
    with pytest.raises(UserError, match="to resume, give the folder"):
        train(resume=True)
    again = train(out=run.folder, resume=True, rounds=2)
    assert again.round == 2
    assert again.config == dataclasses.replace(run.config, rounds=2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """An undisturbed run of SMALL."""
    return train(SMALL, out=tmp_path_factory.mktemp("whole") / "run").folder


def copy_of(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_written_configuration_reruns_the_run(whole, tmp_path):
    train(Config(**configs.read(whole / "config.toml")), out=tmp_path / "again")
    assert_same_run(tmp_path / "again", whole)


def test_a_longer_run_goes_on_where_the_shorter_ended(whole, tmp_path):
    train(SMALL, out=tmp_path / "short", rounds=3)
    train(SMALL, out=tmp_path / "short", rounds=6, resume=True)
    rows = {folder: (folder / "metrics.jsonl").read_text().splitlines() for folder in (whole, tmp_path / "short")}
    assert [json.loads(line)["round"] for line in rows[tmp_path / "short"]] == [0, 2, 3, 4, 6]
    assert json.loads(rows[tmp_path / "short"][-1])["return_per_seed"] == json.loads(rows[whole][-1])["return_per_seed"]
    a, b = final_arrays(whole), final_arrays(tmp_path / "short")
    assert all(np.array_equal(a[name], b[name]) for name in a if name.startswith(("state.server", "state.agents", "costs")))


def test_the_same_settings_and_resume_continue_the_run(tmp_path):
    """Settings that are resolved to something else (u0, a beta of 1) are no difference."""
    settings = {"env": "random-mdp", "agents": 2, "local_steps": 2, "horizon": 3, "eval_every": 2}
    for number, more in enumerate(({"algorithm": "fedsvrpg-m", "u0": "theorem"}, {"algorithm": "pavg", "beta": 1.0})):
        train(out=tmp_path / str(number), rounds=2, **settings, **more)
        assert train(out=tmp_path / str(number), rounds=2, resume=True, **settings, **more).round == 2


def test_resume_refuses_another_configuration_and_harms_nothing(whole, tmp_path):
    run = copy_of(whole, tmp_path)
    others = (
        ({"local_lr": 0.9}, "the run has local-lr 0.05, not 0.9"),
        ({"rounds": 3}, "has 6 rounds, more than 3"),
        ({"u0": 77}, "the run has u0 0, not 77"),
    )
    for other, message in others:
        with pytest.raises(UserError, match=message):
            train(SMALL, out=run, resume=True, **other)
    with pytest.raises(UserError, match="holds a run already"):
        train(SMALL, out=run)
    assert contents(run) == contents(whole)


def test_a_truncated_checkpoint_harms_nothing(whole, tmp_path):
    run = copy_of(whole, tmp_path)
    path = run / "checkpoint" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    before = contents(run)
    with pytest.raises(UserError, match="is damaged"):
        train(out=run, resume=True, rounds=10)
    assert contents(run) == before


def test_a_run_killed_before_its_first_checkpoint_starts_again(whole, tmp_path):
    run = copy_of(whole, tmp_path)
    (run / "checkpoint" / "state.safetensors").unlink()
    train(out=run, resume=True)
    assert_same_run(run, whole)


def poisoned(seeds):
    """An engine in which the rewards of some seeds are NaN."""

    def make_engine(config):
        engine = build(config)
        init = engine.init

        def poisoned_init(key):
            state = init(key)
            agents = jax.tree.map(np.array, state.agents)
            agents.reward[seeds] = np.nan
            return state._replace(agents=agents)

        engine.init = poisoned_init
        return engine

    return make_engine


def test_failed_seeds_are_recorded_and_the_rest_goes_on(tmp_path):
    """A reward that is not a number in some seeds: null in their place, named in failed_seeds, means over the others."""
    last = train(SMALL, out=tmp_path / "run", make_engine=poisoned(seeds=1)).rows[-1]
    assert last["failed_seeds"] == {"1": 0}
    assert last["return_per_seed"][1] is None
    assert last["return"] == pytest.approx(np.mean([last["return_per_seed"][i] for i in (0, 2)]), rel=1e-5)


def test_if_every_seed_fails_it_stops_saved_with_the_reason(tmp_path):
    with pytest.raises(UserError, match=r"every seed failed .* try a smaller --local-lr"):
        train(SMALL, out=tmp_path / "run", make_engine=poisoned(seeds=slice(None)))
    assert (tmp_path / "run" / "checkpoint" / "state.safetensors").exists()


ARGUMENTS = ["--env", "random-mdp", "--agents", "3", "--rounds", "4000", "--local-steps", "4", "--horizon", "10", "--seeds", "4"]
ARGUMENTS += ["--eval-every", "100"]


@pytest.mark.parametrize("algorithm", ["scaffold", OWN], ids=["built-in", "own"])
def test_kill_nine_at_any_moment_then_resume_is_bit_for_bit(algorithm, tmp_path):
    kill_and_compare(tmp_path, [*ARGUMENTS, "--algorithm", algorithm], rows=(1, 8) if algorithm == "scaffold" else (4,))


@pytest.mark.parametrize("at", ["append_line", "checkpoint.write"])
def test_killed_before_or_after_a_line_is_written_then_resumed_is_bit_for_bit(at, whole, tmp_path, monkeypatch):
    """The two moments at which the folder's files disagree, in every evaluation of a run."""

    class Killed(BaseException):
        """As `kill -9`: nothing after it runs."""

    original = checkpoint.write if at == "checkpoint.write" else training.append_line
    rounds_left = iter([2, 4, 6])
    next_kill = next(rounds_left)

    def deadly(path, *arguments):
        nonlocal next_kill
        about = arguments[-1]
        if about.get("round") == next_kill:
            next_kill = next(rounds_left, None)
            raise Killed
        original(path, *arguments)

    monkeypatch.setattr(checkpoint if at == "checkpoint.write" else training, at.rpartition(".")[2], deadly)
    for resume in (False, True, True):
        with pytest.raises(Killed):
            train(SMALL, out=tmp_path / "run", resume=resume)
    train(SMALL, out=tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", whole)


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


@pytest.mark.slow
def test_a_run_with_a_share_of_the_agents_is_resumed_bit_for_bit(tmp_path):
    shares = {"participation": 0.4, "selection": "csh-max", "candidates": 0.8}
    small = {"env": "random-mdp", "algorithm": "scaffold", "agents": 5, "local_steps": 1, "horizon": 4, "seeds": 2, "eval_every": 2}
    run = train(out=tmp_path / "whole", rounds=4, **small, **shares)
    stored = Config(**configs.read(tmp_path / "whole" / "config.toml"))
    assert resolve(stored) == run.config
    train(stored, out=tmp_path / "resumed", rounds=2)
    train(stored, out=tmp_path / "resumed", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "resumed")
    last = run.rows[-1]
    assert last["trajectories_per_seed"] == [4 * 2 * 1 * run.config.batch] * 2  # rounds, participants, local steps
    assert last["floats_up_per_seed"] == [4 * (2 * 2 * 25 + 4 * 25)] * 2  # two vectors of 25 up, four tables of 25
    with pytest.raises(UserError, match=r"cannot resume: the run has participation 0.4, not 0.6"):
        train(stored, out=tmp_path / "resumed", resume=True, participation=0.6)


@pytest.mark.slow
def test_a_private_run_is_resumed_bit_for_bit_and_records_its_epsilon(tmp_path, monkeypatch):
    monkeypatch.setattr(simulate, "COMPILER_OPTIONS", {"cpu": {"xla_backend_optimization_level": 0}})
    private = {"clip": 0.5, "noise": 4.0, "privacy_delta": 1e-4, "compression": "top-k", "keep": 0.3}
    small = {"env": "random-mdp", "algorithm": "fast-fedpg", "agents": 2, "local_steps": 1, "horizon": 3, "eval_every": 1}
    run = train(out=tmp_path / "whole", rounds=2, **small, **private)
    train(out=tmp_path / "resumed", rounds=1, **small, **private)
    train(out=tmp_path / "resumed", rounds=2, resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "resumed")
    assert [row["epsilon"] for row in run.rows] == [epsilon(4.0, 2 * rounds, 1e-4) if rounds else 0.0 for rounds in (0, 1, 2)]
    assert run.rows[-1]["floats_up_per_seed"] == [2 * 2 * 2 * (8 + 8)]  # rounds, agents, exchanges, ceil(0.3 * 25) places and values
    arrays = final_arrays(tmp_path / "whole")
    assert arrays["state.agents.inner.noise_key"].dtype == np.uint32
    assert np.abs(arrays["state.agents.residual[1][0]"]).max() > 0


SHORT = [
    "--algorithm",
    "pavg",
    "--rounds",
    "6",
    "--local-steps",
    "2",
    "--batch",
    "2",
    "--eval-every",
    "1",
    "--eval-episodes",
    "2",
    "--agents",
    "2",
]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(
            ["--env", "gym:Pendulum-v1", "--horizon", "40", *SHORT, "--normalise-observations", "running"], marks=pytest.mark.slow
        ),
        pytest.param(
            ["--env", "gym:LunarLander-v3", "--horizon", "60", *SHORT, "--env-option", "gravity=[-10.0,-6.0]"], marks=pytest.mark.slow
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
    ids=["pendulum", "lunar-lander", "thermostat", "hopper"],
)
def test_with_environments_in_python_kill_nine_then_resume_is_bit_for_bit(arguments, tmp_path):
    kill_and_compare(tmp_path, arguments, rows=(3,))


class Orders(Progress):
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
    options = {"name": ["one", "two", "three"], "orders": str(file)}
    small = {"rounds": 6, "local_steps": 2, "batch": 2, "horizon": 5, "eval_every": 1, "eval_episodes": 2, "seeds": 2}
    return Config(env="helpers.failing_env:make", agents=3, env_option=options, **({"algorithm": "pavg"} | small | settings))


def events(folder: Path) -> list[dict]:
    file = folder / "events.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_failing_agent_is_left_out_recorded_and_comes_back(file, tmp_path):
    orders = {1: "one:raise", 2: "two:nan", 3: "three:shape", 4: ""}
    run = train(config(file), out=tmp_path / "run", progress=Orders(file, orders))
    rows = {row["round"]: row for row in run.rows}
    assert run.round == 6
    assert [rows[r]["refused_per_agent"] for r in range(1, 6)] == [[0, 0, 0], [2, 0, 0], [0, 2, 0], [0, 0, 2], [0, 0, 0]]
    assert [rows[r]["return_per_agent"].index(None) for r in (2, 3, 4)] == [0, 1, 2]
    assert rows[3]["return"] is not None
    assert None not in rows[6]["return_per_agent"]
    assert rows[6]["failed_seeds"] == {}
    found = events(tmp_path / "run")
    what = {0: "step raised RuntimeError: boom", 1: "reward is nan", 2: "observation has shape (3,)"}
    assert all(event["what"].startswith(what[event["agent"]]) for event in found)
    assert {(event["agent"], event["round"], event["during"], event["seed"]) for event in found} == {
        (agent, agent + 1 + after, during, seed)
        for agent in range(3)
        for seed in (0, 1)
        for after, during in ((0, "training"), (1, "evaluation"))
    }
    assert [rows[r]["events"] for r in (1, 6)] == [0, len(found)]


def test_if_all_agents_fail_it_stops_saved_and_goes_on_when_mended(file, tmp_path):
    everyone = "one:raise two:nan three:shape"
    with pytest.raises(UserError, match=r"every agent failed in round 3 \(the last was seed 1, agent .*fix the environment, then --resume"):
        train(config(file), out=tmp_path / "run", progress=Orders(file, {3: everyone}))
    assert {e["agent"] for e in events(tmp_path / "run")} == {0, 1, 2}
    file.write_text("")
    run = train(config(file), out=tmp_path / "run", resume=True)
    assert run.round == 6
    assert events(tmp_path / "run") == [], "the round was done again, without mishap"
    train(config(file), out=tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_if_all_agents_fail_before_round_0_a_resumed_run_starts_over(file, tmp_path):
    file.write_text("one:raise two:raise three:raise")
    with pytest.raises(UserError, match=r"every agent failed before round 0 \(the last was .*boom\): fix the environment, then --resume"):
        train(config(file, algorithm="fedsvrpg-m", u0=1), out=tmp_path / "run")
    file.write_text("")
    train(config(file, algorithm="fedsvrpg-m", u0=1), out=tmp_path / "run", resume=True)
    train(config(file, algorithm="fedsvrpg-m", u0=1), out=tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_an_evaluation_in_which_all_agents_fail_is_done_again(file, tmp_path):
    class Break(Orders):
        """Breaks everything after the last round of training, before its evaluation."""

        def advanced(self, round) -> None:
            if round == 4:
                self.file.write_text("one:raise two:nan three:shape")

    with pytest.raises(UserError, match=r"every agent failed in round 4"):
        train(config(file, eval_every=4), out=tmp_path / "run", progress=Break(file, {}))
    file.write_text("")
    train(config(file, eval_every=4), out=tmp_path / "run", resume=True)
    assert events(tmp_path / "run") == [], "the evaluation was repeated, without mishap"
    train(config(file, eval_every=4), out=tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_the_training_return_is_that_of_the_agents_that_did_not_fail(file, tmp_path):
    """One agent of three always fails: the others' mean return, not two thirds of it."""
    file.write_text("two:raise")
    row = train(config(file, local_lr=1e-9, batch=50, eval_episodes=50), out=tmp_path / "run").rows[-1]
    assert row["train_return"] == pytest.approx(row["return"], rel=0.2)

"""A whole run between a server and agents in this process: what a server may lack, and what agents do not hear of."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedpg import train
from fedpg.flower.server_app import to_agents, train_remotely
from fedpg.runs.config import Config
from helpers.agents import Direct, agents_of

SMALL = {"algorithm": "pavg", "agents": 2, "rounds": 2, "local_steps": 2, "batch": 2, "horizon": 6, "eval_every": 1, "eval_episodes": 2}


@pytest.mark.slow
def test_a_server_without_an_environment_trains_agents_that_have_one(tmp_path):
    shared = SMALL | {"local_lr": 0.05, "discount": 0.95, "baseline": "time", "normalise_observations": "off", "policy": "categorical"}
    known = Config(env="cartpole", **shared)
    blind = Config(env="spaces", env_option={"observation": 4, "choices": 2}, **shared)
    run = train_remotely(blind, tmp_path / "fed", lambda terms, note: Direct(agents_of(known)))
    expected = train(known, out=tmp_path / "sim")
    assert [row["return"] for row in run.rows] == pytest.approx([row["return"] for row in expected.rows], rel=1e-5)
    assert run.rows[-1]["env_steps"] == expected.rows[-1]["env_steps"]


@pytest.mark.slow
def test_a_federation_is_tracked_and_agents_hear_nothing_of_it(tmp_path):
    config = Config(env="random-mdp", track=("tensorboard",), **SMALL)
    run = train_remotely(config, tmp_path / "run", lambda terms, note: Direct(agents_of(config)))
    (file,) = tmp_path.rglob("events.out.tfevents*")
    found = EventAccumulator(str(file.parent)).Reload()
    (name,) = [name for name in found.Tags()["scalars"] if name.endswith("return") and "train" not in name]
    assert [event.value for event in found.Scalars(name)] == pytest.approx([row["return"] for row in run.rows])
    assert "track" not in to_agents(config)


def test_the_run_folder_is_that_of_a_run(tmp_path):
    config = Config(env="random-mdp", **SMALL)
    train_remotely(config, tmp_path / "run", lambda terms, note: Direct(agents_of(config)))
    expected = {"config.toml", "manifest.json", "metrics.jsonl", "checkpoint", "federation"}
    assert {path.name for path in (tmp_path / "run").iterdir()} >= expected

"""From configuration to engine."""

from __future__ import annotations

import dataclasses

import pytest

from fedpg.algorithms import ALGORITHMS
from fedpg.envs import worlds
from fedpg.errors import UserError
from fedpg.runs import config as configs
from fedpg.runs.config import Config
from fedpg.runs.setup import build, presets, resolve, u0_batches
from fedpg.simulate_plain import Debug


@pytest.mark.parametrize("env", [*worlds.NAMES, "gym:CartPole-v1", "my_module:make"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_resolved_configuration_is_complete_and_stays_as_it_is(env, algorithm, tmp_path):
    config = resolve(Config(env=env, algorithm=algorithm))
    assert resolve(config) == config
    needed = {field.name for field in dataclasses.fields(Config)} - {"beta", "global_lr"}
    assert all(getattr(config, name) is not None for name in needed)
    (tmp_path / "c.toml").write_text(configs.to_toml(config))
    assert resolve(Config(**configs.read(tmp_path / "c.toml"))) == config


def test_every_preset_is_a_field():
    names = {configs.flag(field.name) for field in dataclasses.fields(Config)}
    for env, values in presets().items():
        assert env in (*worlds.NAMES, "any", "python")
        assert set(values) <= names | set(ALGORITHMS)


def test_sections_of_the_presets_win_over_one_another():
    """[any] < [python] or [ENV] < [ENV.ALGORITHM], and Gymnasium's own time limit is the horizon."""
    assert resolve(Config(env="my_module:make")).normalise_observations == "auto"
    assert resolve(Config(env="my_module:make")).horizon == presets()["any"]["horizon"]
    assert resolve(Config(env="gym:LunarLander-v3")).horizon == 1000
    assert resolve(Config(env="gym:Pendulum-v1")).horizon == 200
    assert resolve(Config(env="gym:Pendulum-v1", horizon=7)).horizon == 7
    assert resolve(Config(env="hopper", algorithm="fedhapg-m")).local_lr == presets()["hopper"]["fedhapg-m"]["local-lr"]


def test_a_preset_may_name_the_policy_that_auto_is():
    asked = {"env": "random-mdp", "algorithm": "pavg-projected"}
    assert resolve(Config(**asked)).policy == "direct"
    assert resolve(Config(**asked, policy="softmax")).policy == "softmax"
    for wrong in (asked | {"policy": "softmax"}, {"env": "cartpole", "algorithm": "pavg-projected"}):
        with pytest.raises(UserError, match="pavg-projected computes with the whole table of a finite MDP"):
            build(resolve(Config(**wrong)))


def test_mjx_is_for_many_lanes_on_a_gpu(monkeypatch):
    many = {"env": "halfcheetah", "agents": 64, "batch": 64, "seeds": 16}
    assert resolve(Config(**many)).backend == "batch"
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    assert resolve(Config(**many)).backend == "mjx"
    assert resolve(Config(env="halfcheetah", agents=2, batch=8)).backend == "batch"
    assert resolve(Config(env="halfcheetah", agents=2, batch=8, backend="mjx")).backend == "mjx"
    with pytest.raises(UserError, match="cartpole has one backend only"):
        resolve(Config(backend="mjx"))


def test_flags_win_over_presets():
    assert resolve(Config(local_lr=0.5, batch=3)).local_lr == 0.5
    assert resolve(Config(local_lr=0.5, local_steps=4)).global_lr == 2.0
    assert resolve(Config(local_lr=0.5, global_lr=0.1)).global_lr == 0.1


@pytest.mark.parametrize(
    ("settings", "batches"),
    [
        ({"algorithm": "fedsvrpg-m", "local_steps": 32, "rounds": 6, "beta": 0.1}, 534),  # ceil(32 / 0.06)
        ({"algorithm": "fedhapg-m", "local_steps": 10, "rounds": 150, "beta": 0.2}, 2),
        ({"algorithm": "fedsvrpg-m", "beta": 1.0}, 0),
        ({"algorithm": "fedsvrpg-m", "u0": "zero"}, 0),
        ({"algorithm": "fedsvrpg-m", "u0": "7"}, 7),
        ({"algorithm": "pavg"}, 0),
        ({"algorithm": "heavy-ball"}, 0),
        ({"algorithm": "heavy-ball", "u0": "theorem", "local_steps": 10, "rounds": 150}, 2),
    ],
    ids=str,
)
def test_batches_behind_u0(settings, batches):
    config = resolve(Config(**settings))
    assert u0_batches(config) == batches
    assert config.u0 == str(batches)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"env": "cartpol"}, "unknown env 'cartpol': did you mean 'cartpole'"),
        ({"algorithm": "heavyball"}, "unknown algorithm 'heavyball': did you mean 'heavy-ball'"),
        ({"engine": "fast"}, "unknown engine"),
        ({"agents": 0}, "agents must be at least 1"),
        ({"local_steps": 0}, "local-steps must be at least 1"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"beta": 0.0}, r"beta must be in \(0, 1\]"),
        ({"beta": 1.1}, r"beta must be in \(0, 1\]"),
        ({"beta": float("nan")}, r"beta must be in \(0, 1\]"),
        ({"beta": 0.5, "algorithm": "pavg"}, "pavg has no beta"),
        ({"global_lr": 0.5, "algorithm": "local-only"}, "local-only has no global-lr"),
        ({"local_lr": 0.0}, "local-lr must be positive"),
        ({"local_lr": float("inf")}, "local-lr must be positive and finite"),
        ({"discount": 1.5}, "discount must be in"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"heterogeneity": -1.0}, "heterogeneity must be 0 or more"),
        ({"baseline": "critic"}, "unknown baseline"),
        ({"weights": "clipped"}, "unknown weights"),
        ({"u0": "some"}, "unknown u0"),
        ({"seed": -1}, "seed must be from 0"),
    ],
    ids=str,
)
def test_impossible_values(settings, message):
    with pytest.raises(UserError, match=message) as raised:
        resolve(Config(**settings))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"env": "random-mdp", "env_option": ("states=[5,6,5,5,5]",)}, "states differs between agents"),
        ({"env_option": ("lenght=1",)}, "did you mean 'length'"),
        ({"env_option": ("length=[0.5,0.6]",)}, "length lists 2 values for 5 agents"),
        ({"env_option": ("gravity=nan",)}, "gravity must be positive and finite"),
        ({"policy": "softmax"}, "policy 'softmax' is a table"),
        ({"baseline": "value"}, "baseline 'value' needs a finite number of states"),
    ],
    ids=str,
)
def test_impossible_environments(settings, message):
    with pytest.raises(UserError, match=message):
        build(resolve(Config(**settings)))


def test_the_engine_is_the_one_asked_for():
    small = {"env": "random-mdp", "agents": 2, "horizon": 3}
    assert isinstance(build(resolve(Config(**small, engine="debug"))), Debug)

"""The configuration, its TOML file and its options."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest

from fedpg.errors import UserError
from fedpg.runs import config as configs
from fedpg.runs.config import Config, parse_options


def test_toml_round_trip(tmp_path):
    options = {"length": [0.1, 0.2], "kernel": "bernoulli", "limits": {"low": float("-inf"), "on": True}}
    config = Config(agents=7, beta=0.25, env_option=options, normalise_advantages=True, u0=3, local_lr=1e-5, hidden=(64, 32))
    path = tmp_path / "config.toml"
    path.write_text(configs.to_toml(config))
    assert Config(**configs.read(path)) == config
    assert "local-lr = 1e-05" in path.read_text()


def test_a_table_of_options_and_underscores_are_read_too(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text('local_lr = 1\nu0 = 4\nhidden = [8]\n[env-option]\nlength = [0.1, 0.2]\nkernel = "uniform"\n')
    read = configs.read(path)
    assert read == {"local_lr": 1.0, "u0": 4, "hidden": (8,), "env_option": {"length": [0.1, 0.2], "kernel": "uniform"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agnets = 3", "unknown key in .*'agnets': did you mean 'agents'"),
        ("agents = 2.5", "agents must be int, not 2.5"),
        ("agents = 0", "agents must be int >= 1, not 0"),
        ('beta = "small"', "beta must be float, not 'small'"),
        ("normalise-advantages = 1", "normalise-advantages must be bool, not 1"),
        ("hidden = [64, 0]", r"hidden must be int >= 1, not \[64, 0\]"),
        ('track = "wandb"', "track must be a list, not 'wandb'"),
        ("env-option = [1, 2]", r"env-option must be a table, not \[1, 2\]"),
        ("u0 = 1.5", r"u0 must be int | str, not 1.5"),
        ("agents = ", "not valid TOML"),
    ],
)
def test_mistakes_in_the_file(tmp_path, text, message):
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as raised:
        configs.read(path)
    assert "\n" not in str(raised.value)


def test_no_such_file(tmp_path):
    with pytest.raises(UserError, match="no configuration file"):
        configs.read(tmp_path / "none.toml")


def test_options_are_toml_json_or_bare_words():
    found = parse_options(["a=1.5", "b=[1, 2]", "c=bernoulli", 'd="x=y"', 'e={"f": 1}'])
    assert found == {"a": 1.5, "b": [1, 2], "c": "bernoulli", "d": "x=y", "e": {"f": 1}}
    with pytest.raises(UserError, match="must be NAME=VALUE"):
        parse_options(["length"])


def test_arrays_in_options_become_lists():
    assert configs.checked(Config(env_option={"length": np.array([0.5, 1.0])})).env_option == {"length": [0.5, 1.0]}


def test_every_field_is_documented():
    """tyro shows the docstring under each field as help; a field without one would be a flag without an explanation."""
    source = inspect.getsource(Config)
    for field in dataclasses.fields(Config):
        after = source.split(f"    {field.name}: ", 1)[1].split("\n", 2)[1]
        assert after.strip().startswith('"""'), field.name

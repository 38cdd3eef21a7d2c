"""The configuration and its TOML file."""

from __future__ import annotations

import dataclasses

import pytest

from fedpg.errors import UserError
from fedpg.runs import config as configs
from fedpg.runs.config import Config, parse_options


def test_toml_round_trip(tmp_path):
    options = ("length=[0.1,0.2]", 'kernel="bernoulli"')
    config = Config(agents=7, beta=0.25, env_option=options, normalise_advantages=True, u0="3", local_lr=1e-5)
    path = tmp_path / "config.toml"
    path.write_text(configs.to_toml(config))
    assert Config(**configs.read(path)) == config
    assert "local-lr = 1e-05" in path.read_text()


def test_a_table_of_options_and_underscores_are_read_too(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text('local_lr = 1\nu0 = 4\n[env-option]\nlength = [0.1, 0.2]\nkernel = "uniform"\n')
    read = configs.read(path)
    assert read["local_lr"] == 1.0
    assert read["u0"] == "4"
    assert parse_options(read["env_option"]) == {"length": [0.1, 0.2], "kernel": "uniform"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agnets = 3", "unknown key in .*'agnets': did you mean 'agents'"),
        ("agents = 2.5", "agents must be int, not 2.5"),
        ('beta = "small"', "beta must be float, not 'small'"),
        ("normalise-advantages = 1", "normalise-advantages must be bool, not 1"),
        ("agents = ", "not valid TOML"),
        ("env-option = [1, 2]", "env-option must be a table, or a list of NAME=VALUE"),
    ],
)
def test_mistakes_in_the_file(tmp_path, text, message):
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        configs.read(path)


def test_no_such_file(tmp_path):
    with pytest.raises(UserError, match="no configuration file"):
        configs.read(tmp_path / "none.toml")


def test_options_are_toml_or_bare_words():
    assert parse_options(("a=1.5", "b=[1, 2]", "c=bernoulli", 'd="x=y"')) == {"a": 1.5, "b": [1, 2], "c": "bernoulli", "d": "x=y"}
    with pytest.raises(UserError, match="must be NAME=VALUE"):
        parse_options(("length",))


def test_every_field_is_documented():
    """tyro shows the docstring under each field as help; a field without one would be a flag without an explanation."""
    import inspect

    source = inspect.getsource(Config)
    for field in dataclasses.fields(Config):
        after = source.split(f"    {field.name}: ", 1)[1].split("\n", 2)[1]
        assert after.strip().startswith('"""'), field.name

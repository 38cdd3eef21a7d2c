"""`fedpg serve --resume` has the flags of the first start, unless others are given."""

from __future__ import annotations

import dataclasses

import pytest

from fedpg.cli.parse import parse
from fedpg.cli.serve import ServeOptions, remember, remembered
from fedpg.errors import UserError
from fedpg.runs.config import Config
from fedpg.runs.folder import RunFolder

FIRST = ["--config", "fed.toml", "--address", "127.0.0.1:9099", "--status", "none", "--deadline", "30", "--quorum", "2", "--keys", "/keys"]


def resumed(folder: RunFolder, *more: str) -> ServeOptions:
    argv = ["--resume", "--out", str(folder.path), *more]
    return remembered(parse(ServeOptions, argv, "fedpg serve"), argv, folder)[0]


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    remember(parse(ServeOptions, FIRST, "fedpg serve"), Config(env="cartpole", agents=2), made)
    return made


def test_all_flags_come_back(folder):
    first, found = parse(ServeOptions, FIRST, "fedpg serve"), resumed(folder)
    for field in dataclasses.fields(ServeOptions):
        if field.name not in ("config", "out", "resume"):
            assert getattr(found, field.name) == getattr(first, field.name), field.name


def test_flags_that_are_given_win_and_security_is_one_choice(folder):
    found = resumed(folder, "--deadline=60", "--insecure")
    assert (found.deadline, found.quorum, found.insecure, found.keys) == (60.0, 2, True, None)


def test_a_server_that_was_killed_before_it_wrote_a_run_can_be_resumed(folder):
    argv = ["--resume", "--out", str(folder.path)]
    _, file = remembered(parse(ServeOptions, argv, "fedpg serve"), argv, folder)
    assert file == folder.federation / "config.toml"
    assert file.exists()


def test_where_there_is_nothing_there_is_nothing_to_resume(tmp_path):
    with pytest.raises(UserError, match="no run to resume"):
        resumed(RunFolder(tmp_path / "empty"))

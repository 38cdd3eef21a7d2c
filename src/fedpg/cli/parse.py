"""Flags by tyro, with one-line errors."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from pathlib import Path
from typing import TypeVar

import tyro

from fedpg.errors import UserError, did_you_mean
from fedpg.runs import config as configs
from fedpg.runs.config import Config, flag

Options = TypeVar("Options")


def parse(kind: type[Options], argv: list[str], prog: str, default: Options | None = None) -> Options:
    """`argv` as the flat dataclass `kind`; `--help` prints and exits, a mistake raises a one-line `UserError`."""
    known = ["--help", *(f"--{flag(field.name)}" for field in dataclasses.fields(kind))]
    for word in argv:
        name = flag(word.partition("=")[0])
        if name.startswith("--") and name not in known:
            raise UserError(f"unknown flag {name}: {did_you_mean(name, known)}{prog} --help explains every flag")
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            return tyro.cli(kind, args=argv, prog=prog, default=default, config=(tyro.conf.FlagCreatePairsOff,))
    except SystemExit as stop:
        if stop.code != 2:
            raise
    # tyro draws a box: a title, the error, a rule, and help.
    lines = [re.sub(r"[╭╮╰╯│]+", " ", line).strip() for line in printed.getvalue().splitlines()[1:]]
    rule = next((number for number, line in enumerate(lines) if line.startswith("─")), len(lines))
    raise UserError(f"{' '.join(lines[:rule])} ({prog} --help explains every flag)")


def value_of(argv: list[str], name: str) -> str | None:
    """What a flag is given on the command line, before the real parsing."""
    for word, following in zip(argv, [*argv[1:], None], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def parse_run(kind: type[Options], argv: list[str], prog: str, stored: dict | None = None) -> tuple[Config, Options]:
    """The configuration of a verb whose flags are those of `Config` and some more: flags over --config over `stored` over defaults."""
    file = value_of(argv, "--config")
    values = (stored or {}) | (configs.read(Path(file)) if file else {})
    options = parse(kind, argv, prog, kind(**values))
    return Config(**{name: getattr(options, name) for name in configs.FIELDS}), options

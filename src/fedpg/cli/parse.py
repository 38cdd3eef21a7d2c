"""Flags by tyro, with one-line errors."""

from __future__ import annotations

import contextlib
import io
import re
from typing import TypeVar

import tyro

from fedpg.errors import UserError

Options = TypeVar("Options")


def parse(kind: type[Options], argv: list[str], prog: str, default: Options | None = None) -> Options:
    """`argv` as the dataclass `kind`; `--help` prints and exits, a mistake raises a one-line `UserError`."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, args=argv, prog=prog, default=default, config=(tyro.conf.FlagCreatePairsOff,))
    except SystemExit as stop:
        if stop.code != 2:
            raise
    lines = [re.sub(r"[╭╮╰╯│─]+", " ", line).strip() for line in said.getvalue().splitlines()]
    text = [line for line in lines if line and not line.startswith(("For full helptext", "Argument helptext", "Got errors"))]
    raise UserError(f"{' '.join(text[1:4])} (see {prog} --help)")

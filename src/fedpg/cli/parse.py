"""Flags by tyro, with one-line errors."""

import contextlib
import dataclasses
import io
import itertools
import sys
from pathlib import Path
from typing import Any, TypeVar

import tyro
from rich.console import Console

from fedpg.cli import help
from fedpg.errors import UserError, did_you_mean
from fedpg.runs import config as configs
from fedpg.runs.config import flag

Options = TypeVar("Options")


def console() -> Console:
    """Where tables are printed; wide enough for them where there is no terminal, for which Rich would take 80 columns."""
    return Console(width=None if sys.stdout.isatty() else 140)


def parse(kind: type[Options], argv: list[str], prog: str) -> Options:
    """`argv` as the flat dataclass `kind`; `--help` prints and exits, a mistake raises a one-line `UserError`."""
    known = ["--help", *(f"--{flag(field.name)}" for field in dataclasses.fields(kind))]
    for word in argv:
        name = flag(word.partition("=")[0])
        if name.startswith("--") and name not in known:
            raise UserError(f"unknown flag {name}: {did_you_mean(name, known)}{prog} --help explains every flag")
    if {"-h", "--help"} & set(argv):
        help.show(kind, prog, Console(width=None if sys.stdout.isatty() else 110))
        raise SystemExit(0)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            return tyro.cli(kind, args=argv, prog=prog, config=(tyro.conf.FlagCreatePairsOff,))
    except SystemExit as stop:
        if stop.code != 2:
            raise
    # tyro draws a box: a title, the error, and help.
    lines = [line.strip(" │|") for line in printed.getvalue().splitlines()[1:]]
    text = [line for line in lines if line.strip("╭╮╰╯─+-")]
    error = itertools.takewhile(lambda line: not line.startswith(("Argument helptext", "For full helptext", "Perhaps")), text)
    raise UserError(f"{' '.join(error)} ({prog} --help explains every flag)")


def parse_run(kind: type[Options], argv: list[str], prog: str) -> tuple[dict[str, Any], Options]:
    """The fields of `Config` that are set by flags, or else by the file of --config, and all options of the verb."""
    options = parse(kind, argv, prog)
    typed = {flag(word.partition("=")[0]) for word in argv}
    given = {name: getattr(options, name) for name in configs.FIELDS if f"--{flag(name)}" in typed}
    return (configs.read(Path(options.config)) if options.config else {}) | given, options

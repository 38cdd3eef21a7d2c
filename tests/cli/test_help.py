"""--help shows every flag with its value, meaning and default, and the docstring as it is written."""

from __future__ import annotations

import dataclasses
import inspect
import io
from typing import Annotated, Literal

import pytest
import tyro
from rich.console import Console

from fedpg.cli import main
from fedpg.cli.help import Flag, flags, show
from fedpg.runs.config import Options


@dataclasses.dataclass(frozen=True)
class Choices:
    """Do something.

    Examples:
        fedpg do this   once
        fedpg do that   twice
    """

    run: Annotated[str, tyro.conf.Positional]
    """Which run,
    of all."""
    server: str
    """Where."""
    out: str | None = None
    """A folder."""
    title: str = "a (b)"
    """Its heading (in bold)."""
    env_option: Options | None = None
    """Pairs."""
    kind: Literal["one", "two"] = "one"
    """What."""
    json: bool = False
    """Print JSON."""


def test_flags_of_a_dataclass():
    assert flags(Choices) == [
        Flag("RUN", "", "Which run, of all.", None),
        Flag("--server", "STR", "Where.", None),
        Flag("--out", "STR", "A folder.", ""),
        Flag("--title", "STR", "Its heading (in bold).", "a (b)"),
        Flag("--env-option", "[NAME=VALUE ...]", "Pairs.", ""),
        Flag("--kind", "STR", "What. One of one, two.", "one"),
        Flag("--json", "", "Print JSON.", ""),
    ]


def test_what_is_shown():
    screen = io.StringIO()
    show(Choices, "fedpg do", Console(file=screen, width=60))
    lines = [line.rstrip() for line in screen.getvalue().splitlines()]
    assert lines[0] == "usage: fedpg do RUN [flags]"
    assert inspect.getdoc(Choices) in screen.getvalue()
    rows = [line.split(maxsplit=1) for line in lines if line.startswith("  --")]
    assert ["--server", "STR                Where. (required)"] in rows
    assert ["--json", "Print JSON."] in rows
    assert max(map(len, lines)) <= 60


def test_mistakes_do_not_print_it(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", "-h"])
    assert stop.value.code == 0
    assert "20 unseen agents of the same family\n" in capsys.readouterr().out

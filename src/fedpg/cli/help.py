"""What --help shows: the docstring of a verb's options as it is written, and a table of its flags."""

import argparse
import inspect
import warnings
from typing import NamedTuple

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text


class Flag(NamedTuple):
    """One flag of a verb, or a word without a flag.

    Attributes:
        name: as it is typed, `--local-lr`, or the name of a word in capitals, `RUN`.
        value: what follows it: `FLOAT`; empty for a switch.
        text: what it means, in one line.
        default: what counts if it is left out; empty if nothing does, None if it must be given.
    """

    name: str
    value: str
    text: str
    default: str | None


def flags(kind: type) -> list[Flag]:
    """The flags of a verb, from the dataclass of its options."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        parser = tyro.extras.get_parser(kind, config=(tyro.conf.FlagCreatePairsOff,))
    return [_flag(action) for action in parser._actions if action.dest != "help"]


def _flag(action: argparse.Action) -> Flag:
    several = "..." if action.nargs == "*" else ""
    name = action.option_strings[0] if action.option_strings else f"{action.dest.upper().removesuffix('S' if several else '')}{several}"
    value = "" if action.nargs == 0 or not action.option_strings else str(action.metavar).replace("{None}|", "")
    choices = value.strip("{}").split(",") if action.choices and value.startswith("{") else []
    text, required = " ".join((action.help or "").split()).removesuffix(")"), (action.help or "").endswith("(required)")
    text, _, default = text.rpartition(" (required") if required else text.rpartition(" (default: ")
    text += f" One of {', '.join(choices)}." if choices else ""
    shown = "" if default.strip() in ("None", "False") else default.strip(" '")
    return Flag(name, "STR" if choices else value.strip("{}"), text, None if required else shown)


def show(kind: type, prog: str, console: Console) -> None:
    """Prints what a verb does, and its flags."""
    found = flags(kind)
    words = "".join(f" {flag.name}" for flag in found if not flag.name.startswith("--"))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(max_width=34, overflow="fold")
    table.add_column(ratio=1)
    for flag in found:
        after = " (required)" if flag.default is None else f" (default: {flag.default})" if flag.default else ""
        table.add_row(Text(f"  {flag.name} {flag.value}".rstrip()), Text(f"{flag.text}{after}"))
    table.add_row("  --help", "Show this and exit.")
    for part in (f"usage: {prog}{words} [flags]\n", f"{inspect.getdoc(kind)}\n", table):
        console.print(Text(part) if isinstance(part, str) else part, soft_wrap=isinstance(part, str), highlight=False)

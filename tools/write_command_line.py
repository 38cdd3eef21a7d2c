"""Writes docs/reference/command-line.md from the flags of every verb.

python tools/write_command_line.py            after a flag has changed; tests/test_docs.py fails until then
"""

import argparse
import importlib
import inspect
import re
import warnings
from collections.abc import Collection
from pathlib import Path

import tyro

from fedpg.cli import VERBS
from fedpg.runs.config import FIELDS, Config

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "command-line.md"
HEAD = """# Command line

<!-- Written by tools/write_command_line.py; do not edit. -->

`fedpg VERB --help` prints the same text in a terminal. A mistake prints one line that says what to do, exits with code 2 and changes
nothing. The flags of `fedpg train` are also the keys of a TOML file and the fields of `fedpg.Config`, see
[Configuration](configuration.md).

| verb | what it does |
|---|---|
"""


def options(verb: str) -> type:
    """The dataclass whose fields are the flags of a verb."""
    return getattr(importlib.import_module(f"fedpg.cli.{verb}"), f"{verb.title()}Options")


def escaped(text: str) -> str:
    """Text as Markdown shows it unchanged, also inside a table; names of pages become links."""
    for sign in "|<*":
        text = text.replace(sign, f"\\{sign}")
    return re.sub(r"docs/([\w/-]+)\.md", r"[\1](../\1.md)", " ".join(text.split()))


def description(kind: type) -> str:
    """The docstring of a verb's options, with its examples as code."""
    paragraphs = (inspect.getdoc(kind) or "").split("\n\n")
    return "\n\n".join(
        f"```bash\n{text.removeprefix('Example: ')}\n```" if text.startswith("Example: ") else escaped(text) for text in paragraphs
    )


def row(action: argparse.Action) -> str:
    """The line of a Markdown table about one flag."""
    name = action.option_strings[0] if action.option_strings else action.dest.upper()
    value = "" if action.nargs == 0 or not action.option_strings else f" {action.metavar}".replace("{None}|", "")
    text, required = action.help.removesuffix(" (required)"), action.help.endswith("(required)")
    text, _, default = text.removesuffix(")").rpartition(" (default: ") if not required else (text, "", "*required*")
    default = {"None": "", "False": "off"}.get(default, default)
    return f"| `{name}{value}` | {escaped(text)} | {default if required else escaped(default)} |"


def flags(kind: type, without: Collection[str]) -> str:
    """A Markdown table of the flags of a verb."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        parser = tyro.extras.get_parser(kind, config=(tyro.conf.FlagCreatePairsOff,))
    rows = [row(action) for action in parser._actions if action.dest not in ("help", *without)]
    return "\n".join(["| flag | meaning | default |", "|---|---|---|", *rows])


def page() -> str:
    """The whole page."""
    parts = [HEAD + "\n".join(f"| [`{verb}`](#{verb}) | {escaped(does)} |" for verb, does in VERBS.items())]
    for verb in VERBS:
        kind = options(verb)
        parts += [f"## {verb}", description(kind)]
        shared = FIELDS if verb != "train" and issubclass(kind, Config) else ()
        if shared:
            parts.append("It takes the flags of [`fedpg train`](#train) that describe a run, and these:")
        parts.append(flags(kind, shared))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())

"""Writes docs/reference/command-line.md from the flags of every verb.

python tools/write_command_line.py            after a flag has changed; tests/test_docs.py fails until then
"""

import importlib
import inspect
import re
from collections.abc import Collection
from pathlib import Path

from fedpg.cli import VERBS
from fedpg.cli.help import Flag, flags
from fedpg.runs.config import FIELDS, Config

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "command-line.md"
HEAD = """# Command line

<!-- Written by tools/write_command_line.py; do not edit. -->

`fedpg VERB --help` prints the same text in a terminal. A mistake prints one line that says what to do, exits with code 2 and changes
nothing. The flags of `fedpg train` are also the keys of a TOML file and the fields of `fedpg.Config`, see
[Configuration](configuration.md). Every verb takes `--no-cache`, see [Compiled programs](run-folder.md#compiled-programs).

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
    """The docstring of a verb's options, with its examples and lists as code."""
    return "\n\n".join(map(paragraph, (inspect.getdoc(kind) or "").split("\n\n")))


def paragraph(text: str) -> str:
    """One paragraph; an example, and lines that are indented below the first, are code."""
    if text.startswith("Example: "):
        return f"```bash\n{text.removeprefix('Example: ')}\n```"
    first, *rest = text.split("\n")
    if rest and all(line.startswith("    ") for line in rest):
        return "\n".join([escaped(first), "", "```", *(line[4:] for line in rest), "```"])
    return escaped(text)


def table(kind: type, without: Collection[str]) -> str:
    """A Markdown table of the flags of a verb."""
    rows = [row(flag) for flag in flags(kind) if flag.name.removeprefix("--").replace("-", "_") not in without]
    return "\n".join(["| flag | meaning | default |", "|---|---|---|", *rows])


def row(flag: Flag) -> str:
    """The line of the table about one flag."""
    switch = flag.name.startswith("--") and not flag.value
    default = "*required*" if flag.default is None else escaped(flag.default) or ("off" if switch else "")
    return f"| `{f'{flag.name} {flag.value}'.strip()}` | {escaped(flag.text)} | {default} |"


def page() -> str:
    """The whole page."""
    parts = [HEAD + "\n".join(f"| [`{verb}`](#{verb}) | {escaped(does)} |" for verb, does in VERBS.items())]
    for verb in VERBS:
        kind = options(verb)
        parts += [f"## {verb}", description(kind)]
        shared = FIELDS if verb != "train" and issubclass(kind, Config) else ()
        if shared:
            parts.append("It takes the flags of [`fedpg train`](#train) that describe a run, and these:")
        parts.append(table(kind, shared))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())

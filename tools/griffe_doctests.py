"""A griffe extension: doctests in docstrings are shown as code."""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"(?:^[ \t]*>>> .*\n(?:^[ \t]*\S.*(?:\n|\Z))*)", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts every doctest into a fenced block."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            value = obj.docstring.value + "\n"
            obj.docstring.value = DOCTEST.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", value).rstrip()

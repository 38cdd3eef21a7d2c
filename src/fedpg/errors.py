"""Errors that a user can correct, reported as one line that says how."""

import difflib
from collections.abc import Iterable

LONGEST_TEXT = 300
"""Characters of a text from elsewhere that are kept."""


class UserError(ValueError):
    """An error that the user can correct. The message is one line and says how; the command line exits with 2."""


def choose(kind: str, name: str, known: Iterable[str]) -> str:
    """Returns `name` if it is one of `known`; otherwise raises a `UserError` that suggests the nearest.

    >>> choose("fruit", "appel", ["apple", "pear"])
    Traceback (most recent call last):
        ...
    fedpg.errors.UserError: unknown fruit 'appel': did you mean 'apple'? Known: apple, pear
    """
    known = list(known)
    if name in known:
        return name
    raise UserError(f"unknown {kind} {name!r}: {did_you_mean(name, known)}Known: {', '.join(known)}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question with the nearest of `known`, for an error message; empty if nothing is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.4)
    return f"did you mean {near[0]!r}? " if near else ""


def require(condition: bool, message: str) -> None:
    """Raises `UserError(message)` unless `condition` holds."""
    if not condition:
        raise UserError(message)


def one_line(text: str) -> str:
    """A text from elsewhere made fit for a log: one line, printable, at most `LONGEST_TEXT` characters.

    >>> one_line("bad\\nnews")
    'bad news'
    """
    return "".join(c if c.isprintable() else " " for c in text[:LONGEST_TEXT])

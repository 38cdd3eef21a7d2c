"""Mistakes a user can make, and the one line that says what to do about them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A problem the user can mend. The message is one line and says how; the command line exits 2."""


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
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UserError(f"unknown {kind} {name!r}: {hint}Known: {', '.join(known)}")


def require(condition: bool, message: str) -> None:
    """Raises `UserError(message)` unless `condition` holds."""
    if not condition:
        raise UserError(message)

"""What a server asks of an agent on another machine, and what it may answer: one packet each way.

    hello      which agent are you, and do we understand each other?
    update     shared, and which of your states to start from        -> the message, and what it cost
    report     params                                                -> what a candidate for the round tells
    evaluate   shared, and which of your states                      -> return and objective

An agent's state never travels: of each the server holds only a number, which says after which exchange it was written. So the
server, not the agent, decides whether an exchange counts; one whose message came too late, or was refused, or was lost in a crash,
starts again from the state before it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fedpg.flower.packets import Refused

HELLO, UPDATE, REPORT, EVALUATE = "hello", "update", "report", "evaluate"
BEGINNING = -1
"""The number of the state that an agent begins with."""

MESSAGE = "message"
"""What the names of a message's arrays begin with in the answer to an update."""


@dataclasses.dataclass(frozen=True)
class Task:
    """The header of a packet to an agent."""

    kind: str
    """hello, update, report or evaluate."""
    run: str
    """Which run: agents keep the states of different runs apart."""
    config: str
    """The server's configuration as TOML; the agent keeps its own environment."""
    serial: int = 0
    """The number of this task, which the answer must repeat."""
    round: int = 0
    """r."""
    purpose: int = 0
    """What the agent's random key is for, see `Purpose`."""
    number: int = 0
    """Which of the exchanges of that purpose."""
    start: int = BEGINNING
    """The state to start from."""
    result: int = BEGINNING
    """The number of the state that follows."""
    keep: int = BEGINNING
    """The state of the last checkpoint: not to be thrown away yet."""
    schema: str = ""
    """Digest of the arrays that belong into the answer."""
    seconds: float = 0.0
    """How long the server will wait for the answer."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """The header of a packet to the server."""

    serial: int
    """Which task it answers."""
    run: str
    """Which run."""
    agent: int
    """Who answers."""
    error: str = ""
    """Why there are no arrays; empty if there are."""
    withheld: bool = False
    """Whether the agent keeps what was asked for to itself, as it may with reports and evaluations."""
    fresh: bool = False
    """Whether the state to start from was not there any more, so that the agent began anew."""
    events: tuple[str, ...] = ()
    """What went wrong in its environment, one line each."""
    schema: str = ""
    """Digest of the arrays."""


LONGEST_TEXT = 300
MOST_EVENTS = 20


def write(header: Task | Answer) -> dict[str, Any]:
    """The header as plain values."""
    return dataclasses.asdict(header)


def read(kind: type, header: dict[str, Any]) -> Any:
    """`header` as a Task or an Answer.

    Raises:
        Refused: if a name is missing, is not known, or has a value of another type.
    """
    fields = {field.name: field.type for field in dataclasses.fields(kind)}
    if set(fields) != set(header):
        raise Refused("a header with other names than this version of fedpg has")
    values = {name: _value(name, fields[name], header[name]) for name in fields}
    return kind(**values)


def _value(name: str, kind: str, value: Any) -> Any:
    if kind == "tuple[str, ...]":
        listed = isinstance(value, list) and len(value) <= MOST_EVENTS and all(isinstance(text, str) for text in value)
        if not listed:
            raise Refused(f"{name} in the header is no list of texts")
        return tuple(one_line(text) for text in value)
    if kind == "float" and type(value) is int:
        value = float(value)
    if type(value).__name__ != kind:
        raise Refused(f"{name} in the header is no {kind}")
    if kind == "int" and not -1 <= value < 2**62:
        raise Refused(f"{name} in the header is out of range")
    return one_line(value) if name == "error" else value


def one_line(text: str) -> str:
    """A text from elsewhere, fit for a log: one line, printable, not too long."""
    return "".join(c if c.isprintable() else " " for c in text[:LONGEST_TEXT])

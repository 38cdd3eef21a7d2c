"""How the numbers of a status are written, on the terminal and on the page."""

from __future__ import annotations

import math
import re

from fedpg.flower.snapshot import MISSED, REFUSED, Agent, Event, Point, Status

SPARKS = "▁▂▃▄▅▆▇█"


def duration(seconds: float) -> str:
    """A time span in one unit.

    >>> [duration(s) for s in (0.25, 3, 12.4, 200.0, 7200, 200_000)]
    ['0.2 s', '3 s', '12 s', '3 min', '2 h', '2 days']
    """
    for unit, length, limit in (("s", 1, 100), ("min", 60, 6000), ("h", 3600, 48 * 3600)):
        if seconds < limit:
            return f"{seconds / length:.{1 if seconds < 9.95 and isinstance(seconds, float) else 0}f} {unit}"
    return f"{seconds / 86400:.0f} days"


def ago(when: float | None, now: float) -> str:
    """How long ago something was."""
    if when is None:
        return "never"
    # Clocks may differ by a little, and nobody wants to read of the future.
    return "now" if now - when < 2 else f"{duration(round(now - when))} ago"


def amount(value: float) -> str:
    """A count with three digits.

    >>> [amount(v) for v in (0, 999, 1234, 999_999, 2.5e9)]
    ['0', '999', '1.23 k', '1 M', '2.5 G']
    """
    for unit in ("", " k", " M", " G"):
        if abs(value) < 999.5:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g} T"


def size(count: int) -> str:
    """Bytes.

    >>> size(12), size(34_567)
    ('12 B', '34.6 kB')
    """
    number, _, unit = amount(count).partition(" ")
    return f"{number} {unit}B"


def score(value: float | None) -> str:
    """A return, with at least two digits; - if nobody knows it.

    >>> [score(v) for v in (None, 0.01234, 4.5, 487.6543, -1234567.8)]
    ['-', '0.0123', '4.50', '487.7', '-1234568']
    """
    if value is None:
        return "-"
    size = abs(value)
    return f"{value:.0f}" if size >= 1e5 else f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 1 else f"{value:.3g}"


def standing(agent: Agent) -> str:
    """What an agent is doing, in a word or two."""
    if not agent.present:
        return "absent" if agent.seen else "not here yet"
    if agent.at_work:
        return "at work"
    return {REFUSED: "refused", MISSED: "no answer"}.get(agent.outcome, "present")


def needs_a_look(agent: Agent) -> bool:
    """Whether something is wrong with an agent now."""
    return not agent.present or (not agent.at_work and agent.outcome in (REFUSED, MISSED))


def moment(event: Event) -> str:
    """When an event happened; rounds are counted from 1, as in the state."""
    return {"training": f"round {event.round + 1}", "evaluation": f"evaluation after round {event.round}"}.get(event.during, event.during)


def kind(what: str) -> str:
    """An event's text without its numbers: two that differ in nothing else are of one kind.

    >>> kind("a norm of 1.5e+30 is above the bound of 1e+09")
    'a norm of # is above the bound of #'
    """
    return re.sub(r"\d[\d.,e+-]*", "#", what)


def happening(event: Event) -> str:
    """An event in a line."""
    whose = "" if event.agent is None else f"agent {event.agent}: "
    times = f" ({event.count} times)" if event.count > 1 else ""
    return f"{whose}{event.what}{times}"


def result(point: Point) -> str:
    """An evaluation in a line."""
    return f"return {score(point.total_return)}, worst agent {score(point.return_worst)}"


def named(agents: list[int]) -> str:
    """Agents in a line.

    >>> named([3]), named([0, 1, 2])
    ('agent 3', 'agents 0, 1, 2')
    """
    return f"agent{'s' if len(agents) > 1 else ''} {', '.join(map(str, agents))}"


def present(status: Status) -> int:
    """How many agents are there."""
    return sum(agent.present for agent in status.agents)


def sparks(values: list[float]) -> str:
    """A curve in one line of text.

    >>> sparks([0.0, 1.0, 2.0, 7.0])
    '▁▂▃█'
    """
    low, high = min(values, default=0.0), max(values, default=0.0)
    step = (high - low) / (len(SPARKS) - 1) or math.inf
    return "".join(SPARKS[round((value - low) / step)] for value in values)

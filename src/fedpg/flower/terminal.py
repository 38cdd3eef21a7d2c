"""The status of a federation on the server's terminal: a live table, or plain lines where there is no terminal."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path
from types import TracebackType

import rich.live
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedpg.flower.status import ABSENT, Event, Point, Status, event_kind, read_status

PER_SECOND = 4
"""How often the file is read."""
COLOURS = {"waiting": "yellow", "finished": "green", "stopped": "yellow", "failed": "bold red"}
WIDTHS = {"agent": 5, "state": 12, "last seen": 10, "accepted": 8, "refused": 7, "missed": 6}
"""Columns that are always there, and their least widths."""
WIDTH_FOR_PROBLEMS, WIDTH_FOR_SECONDS = 72, 95
"""The least widths of a terminal that show these columns."""
OTHER_LINES = 14
"""Lines of the picture that are not agents."""
MAX_EVENT_LINES = 20
"""Kinds of events printed as lines; events.jsonl has all."""
TOLD_ELSEWHERE = (ABSENT, "waiting for the others")
"""Ends of events that the lines about agents and states say already."""
SPARKS = "▁▂▃▄▅▆▇█"


class StatusView:
    """Shows the status in a file while the `with` block runs, and leaves the last one on the screen.

    Args:
        console: where.
        path: the file; need not exist yet.
    """

    def __init__(self, console: Console, path: Path) -> None:
        self._console, self._path, self._lines, self._stop = console, path, StatusLines(), threading.Event()
        self._picture = rich.live.Live(get_renderable=self._draw, console=console, refresh_per_second=PER_SECOND)
        self._thread = threading.Thread(target=self._print, name="status", daemon=True)

    def __enter__(self) -> StatusView:
        if self._console.is_terminal:
            self._picture.start()
        else:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._console.is_terminal:
            self._picture.stop()
            return
        self._stop.set()
        self._thread.join()

    def _draw(self) -> RenderableType:
        max_agents, ascii_only = max(3, self._console.height - OTHER_LINES), self._console.options.ascii_only
        return draw(read_status(self._path) or Status(), time.time(), max_agents, self._console.width, ascii_only)

    def _print(self) -> None:
        last = False
        while not last:
            last = self._stop.wait(1 / PER_SECOND)
            for line in self._lines.new(read_status(self._path) or Status()):
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class StatusLines:
    """Plain lines that say what has changed since the last call."""

    def __init__(self) -> None:
        self._state, self._here, self._round, self._number = "", set[int](), -1, 0
        self._told: set[tuple[int | None, str]] = set()

    def new(self, status: Status) -> list[str]:
        """A line for agents that come or go, each evaluation, each kind of event, and the end."""
        lines = []
        here = {agent.number for agent in status.agents if agent.present}
        for word, changed in (("here", here - self._here), ("gone", self._here - here)):
            if changed:
                names = f"agent{'s' if len(changed) > 1 else ''} {', '.join(map(str, sorted(changed)))}"
                lines.append(f"{word}: {names} ({len(here)} of {len(status.agents)} are there)")
        lines += [f"round {point.round}: {result(point)}" for point in status.curve if point.round > self._round]
        for event in status.events:
            kind = (event.agent, event_kind(event.what))
            new = event.number > self._number and kind not in self._told and len(self._told) < MAX_EVENT_LINES
            if new and not event.what.endswith(TOLD_ELSEWHERE):
                self._told.add(kind)
                lines.append(f"{event.place}: {describe(event)} (events.jsonl has all)")
        if status.phase in COLOURS and status.state != self._state:
            lines.append(status.state)
        self._here, self._state = here, status.state
        self._round = max([self._round, *(point.round for point in status.curve)])
        self._number = max([self._number, *(event.number for event in status.events)])
        return lines


def draw(status: Status, now: float, max_agents: int = 20, width: int = 100, ascii_only: bool = False) -> RenderableType:
    """The picture of a status.

    Args:
        status: what to show.
        now: UNIX time.
        max_agents: lines for agents; those with a problem come first.
        width: columns of the terminal.
        ascii_only: draw no curve, which needs Unicode.
    """
    title = f"{status.algorithm} on {status.env}" if status.algorithm else "federation"
    parts: list[RenderableType] = [Text.assemble((title, "bold"), "  ", (status.state, COLOURS.get(status.phase, "cyan")))]
    if status.rounds:
        progress = Table.grid(padding=(0, 1))
        bar = ProgressBar(status.rounds, min(status.round, status.rounds), width=40)
        progress.add_row(bar, f"{status.round} of {status.rounds} rounds")
        parts.append(progress)
    if (metrics := status.metrics) is not None:
        known = [point.total_return for point in status.curve if point.total_return is not None]
        curve = "" if ascii_only or len(known) < 2 else f"  {sparks(known)}"
        parts.append(Text(f"{result(metrics)} after round {metrics.round}{curve}", no_wrap=True))
        floats = f"numbers up {amount(metrics.floats_up)}, down {amount(metrics.floats_down)}"
        private = "" if metrics.epsilon is None else f"; epsilon {metrics.epsilon:.3g}"
        size = f"{amount(status.bytes_received)}B up, {amount(status.bytes_sent)}B down"
        parts.append(Text(f"{amount(metrics.env_steps)} env steps; {floats}; {size}{private}"))
    if status.agents:
        parts.append(_table(status, now, max_agents, width))
    for event in status.events[-3:]:
        parts.append(Text(f"{ago(event.when, now)}, {event.place}: {describe(event)}", "yellow", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _table(status: Status, now: float, max_agents: int, width: int) -> Table:
    here = sum(agent.present for agent in status.agents)
    table = Table(title=f"{here} of {len(status.agents)} agents are there", title_justify="left", box=None, padding=(0, 1, 0, 0))
    for name, least in (WIDTHS | ({"took": 6} if width >= WIDTH_FOR_SECONDS else {})).items():
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True, min_width=least)
    if width >= WIDTH_FOR_PROBLEMS:
        table.add_column("last problem", no_wrap=True, overflow="ellipsis")
    ordered = sorted(status.agents, key=lambda agent: (agent.well, agent.number))
    shown, rest = sorted(ordered[:max_agents], key=lambda agent: agent.number), ordered[max_agents:]
    for agent in shown:
        cells = [str(agent.number), agent.state, ago(agent.seen, now), str(agent.accepted), str(agent.refused), str(agent.missed)]
        if width >= WIDTH_FOR_SECONDS:
            cells.append("" if agent.seconds is None else duration(agent.seconds))
        if width >= WIDTH_FOR_PROBLEMS:
            cells.append(agent.problem)
        style = "" if agent.well or status.phase == "starting" else "yellow"
        table.add_row(*(Text(cell, style) for cell in cells))
    if rest:
        trouble = sum(not agent.well for agent in rest)
        table.caption = f"and {len(rest)} more, {trouble} of them absent, refused or silent"
        table.caption_justify = "left"
    return table


def result(point: Point) -> str:
    """An evaluation as a line."""
    return f"return {score(point.total_return)}, worst agent {score(point.return_worst)}"


def describe(event: Event) -> str:
    """An event as a line."""
    times = f" ({event.count} times)" if event.count > 1 else ""
    return f"{'' if event.agent is None else f'agent {event.agent}: '}{event.what}{times}"


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
    """How long ago something was; clocks may differ a little."""
    return "never" if when is None else "now" if now - when < 2 else f"{duration(round(now - when))} ago"


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


def score(value: float | None) -> str:
    """A return, with at least two digits; - if it is not known.

    >>> [score(v) for v in (None, 0.01234, 4.5, 487.6543, -1234567.8)]
    ['-', '0.0123', '4.50', '487.7', '-1234568']
    """
    if value is None:
        return "-"
    size = abs(value)
    return f"{value:.0f}" if size >= 1e5 else f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 1 else f"{value:.3g}"


def sparks(values: list[float]) -> str:
    """A curve in one line of text.

    >>> sparks([0.0, 1.0, 2.0, 7.0])
    '▁▂▃█'
    """
    low, high = min(values), max(values)
    step = (high - low) / (len(SPARKS) - 1) or math.inf
    return "".join(SPARKS[round((value - low) / step)] for value in values)

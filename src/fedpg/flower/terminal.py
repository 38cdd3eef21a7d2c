"""The status of a federation on the server's terminal: a picture that moves, or plain lines where there is no terminal."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType

import rich.live
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedpg.flower import snapshot
from fedpg.flower.snapshot import Status
from fedpg.flower.status_file import read
from fedpg.flower.telling import Teller
from fedpg.flower.wording import ago, amount, duration, happening, moment, needs_a_look, present, result, size, sparks, standing

PER_SECOND = 4
COLOURS = {snapshot.WAITING: "yellow", snapshot.FINISHED: "green", snapshot.STOPPED: "yellow", snapshot.FAILED: "bold red"}
WIDTHS = {"agent": 5, "state": 12, "last seen": 10, "accepted": 8, "refused": 7, "missed": 6}
"""Columns that are always there, and their least widths."""
ROOM_FOR_PROBLEMS, ROOM_FOR_SECONDS = 72, 95
"""The least widths of a terminal on which they are shown."""
BESIDES_AGENTS = 14
"""Lines of the picture that are not agents."""


class Live:
    """Shows the status in a file while the `with` block runs, and leaves the last one on the screen.

    Args:
        console: where.
        path: the file; need not exist yet.
    """

    def __init__(self, console: Console, path: Path) -> None:
        self._console, self._path, self._teller, self._stop = console, path, Teller(), threading.Event()
        self._picture = rich.live.Live(get_renderable=self._draw, console=console, refresh_per_second=PER_SECOND)
        self._thread = threading.Thread(target=self._tell, name="status", daemon=True)

    def __enter__(self) -> Live:
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
        plain = self._console.options.ascii_only
        most = max(3, self._console.height - BESIDES_AGENTS)
        return draw(read(self._path) or Status(), time.time(), most, self._console.width, plain)

    def _tell(self) -> None:
        last = False
        while not last:
            last = self._stop.wait(1 / PER_SECOND)
            for line in self._teller.lines(read(self._path) or Status()):
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def draw(status: Status, now: float, most_agents: int = 100, width: int = 100, plain: bool = False) -> RenderableType:
    """The picture.

    Args:
        status: of what.
        now: UNIX time.
        most_agents: lines for agents; those with which something is wrong come first.
        width: columns of the terminal.
        plain: use only ASCII.
    """
    parts: list[RenderableType] = [Text.assemble((_title(status), "bold"), "  ", (status.state, COLOURS.get(status.phase, "cyan")))]
    if status.rounds:
        progress = Table.grid(padding=(0, 1))
        progress.add_row(
            ProgressBar(status.rounds, min(status.round, status.rounds), width=40), f"{status.round} of {status.rounds} rounds"
        )
        parts.append(progress)
    if status.metrics is not None:
        known = [point.total_return for point in status.curve if point.total_return is not None]
        curve = "" if plain or len(known) < 2 else f"  {sparks(known)}"
        parts.append(Text(f"{result(status.metrics)} after round {status.metrics.round}{curve}", no_wrap=True))
        parts.append(Text(_costs(status)))
    if status.agents:
        parts.append(_table(status, now, most_agents, width))
    for event in status.events[-3:]:
        parts.append(Text(f"{ago(event.when, now)}, {moment(event)}: {happening(event)}", "yellow", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _title(status: Status) -> str:
    return f"{status.algorithm} on {status.env}" if status.algorithm else "federation"


def _costs(status: Status) -> str:
    metrics = status.metrics
    floats = f"numbers up {amount(metrics.floats_up)}, down {amount(metrics.floats_down)}"
    private = "" if metrics.epsilon is None else f"; epsilon {metrics.epsilon:.3g}"
    sent = f"{size(status.bytes_received)} up, {size(status.bytes_sent)} down"
    return f"{amount(metrics.env_steps)} env steps; {floats}; {sent}{private}"


def _table(status: Status, now: float, most: int, width: int) -> Table:
    table = Table(title=f"{present(status)} of {len(status.agents)} agents are there", title_justify="left", box=None, padding=(0, 1, 0, 0))
    for name, least in (WIDTHS | ({"took": 6} if width >= ROOM_FOR_SECONDS else {})).items():
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True, min_width=least)
    if width >= ROOM_FOR_PROBLEMS:
        table.add_column("last problem", no_wrap=True, overflow="ellipsis")
    ordered = sorted(status.agents, key=lambda agent: (not needs_a_look(agent), agent.number))
    shown = sorted(ordered[:most], key=lambda agent: agent.number)
    for agent in shown:
        style = "yellow" if needs_a_look(agent) and status.phase != snapshot.STARTING else ""
        took = "" if agent.seconds is None else duration(agent.seconds)
        cells = (str(agent.number), standing(agent), ago(agent.seen, now), str(agent.accepted), str(agent.refused), str(agent.missed))
        cells += ((took,) if width >= ROOM_FOR_SECONDS else ()) + ((agent.problem,) if width >= ROOM_FOR_PROBLEMS else ())
        table.add_row(*(Text(cell, style) for cell in cells))
    if len(shown) < len(ordered):
        trouble = sum(map(needs_a_look, ordered[most:]))
        table.caption = f"and {len(ordered) - most} more, {trouble} of them absent, refused or silent"
        table.caption_justify = "left"
    return table

"""The status of a federation on the server's terminal: a line for everything that matters, and below them the progress of the round."""

import threading
from pathlib import Path
from types import TracebackType

import rich.live
from rich.console import Console, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedpg.flower.status import ABSENT, Status, event_kind, read_status

PER_SECOND = 4
"""How often the file is read."""
COLOURS = {"waiting": "yellow", "finished": "green", "stopped": "yellow", "failed": "bold red"}
"""Of the phases that get a line of their own."""
MAX_EVENTS = 20
"""Kinds of events that get a line, for each agent; events.jsonl has all."""
REFUSED = "refused"
"""How the events of greetings begin that get a line every time: `Door` limits them."""
WAITING = "waiting for "
"""How the events begin that say for whom the server waits."""


class StatusView:
    """Prints the status in a file, as it changes, while the `with` block runs. The status page has a table of all agents.

    Args:
        console: where. If it is no terminal, there is no line with the progress.
        path: the file; what it holds already is not printed again.
    """

    def __init__(self, console: Console, path: Path) -> None:
        self._console, self._path, self._stop = console, path, threading.Event()
        self._lines = StatusLines(every_round=not console.is_terminal)
        if (before := read_status(path)) is not None:
            self._lines.new(before)
        self._progress = rich.live.Live(get_renderable=self._draw, console=console, refresh_per_second=PER_SECOND, transient=True)
        self._thread = threading.Thread(target=self._print, name="status", daemon=True)

    def __enter__(self) -> "StatusView":
        if self._console.is_terminal:
            self._progress.start()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._progress.stop()

    def _draw(self) -> RenderableType:
        status, row = read_status(self._path) or Status(), Table.grid(padding=(0, 1))
        row.add_row(ProgressBar(status.rounds or 1, status.round, width=20), Text(status.state, COLOURS.get(status.phase, "cyan")))
        return row

    def _print(self) -> None:
        last = False
        while not last:
            last = self._stop.wait(1 / PER_SECOND)
            status = read_status(self._path)
            for line in self._lines.new(status) if status else ():
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class StatusLines:
    """Plain lines that say what has changed since the last call; with `every_round`, also one for each round."""

    def __init__(self, every_round: bool = False) -> None:
        self._every_round, self._last_round = every_round, ""
        self._state, self._here, self._round, self._number = "", set[int](), -1, 0
        self._told: set[tuple[int | None, str]] = set()

    def new(self, status: Status) -> list[str]:
        """A line for agents that come or go, each evaluation, each kind of event, and each phase that an operator must know."""
        lines = []
        here = {agent.number for agent in status.agents if agent.present}
        for word, changed in (("here", here - self._here), ("gone", self._here - here)):
            if changed:
                names = f"agent{'s' if len(changed) > 1 else ''} {', '.join(map(str, sorted(changed)))}"
                lines.append(f"{word}: {names} ({len(here)} of {len(status.agents)} are there)")
        if self._every_round and status.last_round not in ("", self._last_round):
            lines.append(status.last_round)
        for point in status.curve:
            if point.round > self._round:
                mean, worst = ("-" if value is None else f"{value:.5g}" for value in (point.total_return, point.return_worst))
                lines.append(f"round {point.round}: return {mean}, worst agent {worst}")
        for event in status.events:
            kind = (event.agent, event.what if event.what.startswith(WAITING) else event_kind(event.what))
            refused = event.place == "greeting" and event.what.startswith(REFUSED)
            first = kind not in self._told and sum(agent == event.agent for agent, _ in self._told) < MAX_EVENTS
            new = event.number > self._number and (first or refused)
            # The lines about agents and phases say already who is absent, and who is waited for before a round.
            told = event.what == ABSENT or (event.what.startswith(WAITING) and status.phase == "waiting")
            if new and not told:
                self._told |= set() if refused else {kind}
                whose = "" if event.agent is None else f"agent {event.agent}: "
                lines.append(f"{event.place}: {whose}{event.what} (events.jsonl has all)")
        if status.phase in COLOURS and status.state != self._state:
            lines.append(status.state)
        self._here, self._state, self._last_round = here, status.state, status.last_round
        self._round = max([self._round, *(point.round for point in status.curve)])
        self._number = max([self._number, *(event.number for event in status.events)])
        return lines

"""The events of a federation, noted by any thread of the server."""

import threading
from collections.abc import Callable
from typing import Any

from fedpg.errors import one_line


class EventQueue:
    """An event log (`fedpg.events.EventLog`) whose events are written as soon as somebody listens.

    Attributes:
        round, during: where in the run the server is; what is noted belongs there.
    """

    live = True

    def __init__(self) -> None:
        self.round, self.during = 0, "starting"
        self._events, self._lock = list[dict[str, Any]](), threading.RLock()
        self._write: Callable[[], None] | None = None

    def note(self, agent: int | None, what: str, during: str | None = None) -> None:
        """Records an event; `agent` is None where it concerns no particular one, `during` where it belongs elsewhere."""
        with self._lock:
            place = {"round": self.round, "during": during or self.during}
            self._events.append(place | {"seed": 0, "agent": agent, "what": one_line(what)})
            if self._write:
                self._write()

    def take(self) -> list[dict[str, Any]]:
        """The events since the last call."""
        with self._lock:
            taken, self._events = self._events, []
            return taken

    def listen(self, write: Callable[[], None] | None) -> None:
        """Has `write`, which takes the events, called for every event from now on; None: events wait."""
        with self._lock:
            self._write = write
            if write:
                write()

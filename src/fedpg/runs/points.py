"""What trackers get: a line of metrics.jsonl as plain numbers with names, and what a tracker is."""

from __future__ import annotations

import bisect
import datetime
import json
import secrets
import threading
from typing import Any, NamedTuple, Protocol

from fedpg.runs.folder import RunFolder, write_atomically

TRACKING = "tracking"
"""During what an event happened that is about a tracker, and not about an agent."""
TOKEN = "tracking-id"
"""The file with the name under which trackers on other machines know the run."""

_MAKING = threading.Lock()  # every tracker asks for the name in a thread of its own


class Point(NamedTuple):
    """One evaluated round.

    Attributes:
        round: rounds done: the step in every tracker.
        time: seconds of UNIX time: when the run began, plus `seconds` of the row. The same whenever it is sent.
        values: name -> number; what was null is not there.
    """

    round: int
    time: float
    values: dict[str, float]


class Tracker(Protocol):
    """One run in one tracker; made by `open_run(folder, config)` of the tracker's module."""

    def log(self, point: Point) -> None:
        """Adds a round. Points come in order, from round 0; a tracker passes over those that it has from an earlier process."""

    def close(self, complete: bool) -> None:
        """The end: of the run, or of this process only."""


def values_of(row: dict[str, Any]) -> dict[str, float]:
    """The numbers of a row. Lists over agents become NAME/0, NAME/1, ...; lists over seeds are left out: their means are there.

    >>> values_of({"round": 4, "return": 1.5, "ess": None, "return_per_seed": [1, 2], "return_per_agent": [1, None], "failed_seeds": {}})
    {'return': 1.5, 'return_per_agent/0': 1.0, 'failed_seeds': 0.0}
    """
    values: dict[str, Any] = {}
    for name, value in row.items():
        if name == "failed_seeds":
            values[name] = len(value)
        elif name.endswith("_per_agent"):
            values |= {f"{name}/{agent}": entry for agent, entry in enumerate(value)}
        elif isinstance(value, (int, float)) and name != "round":
            values[name] = value
    return {name: float(value) for name, value in values.items() if value is not None}


class Points:
    """Makes points of a run's rows, with `events`: how many lines of events.jsonl came before the row.

    Args:
        folder: the run.
    """

    def __init__(self, folder: RunFolder) -> None:
        created = json.loads(folder.manifest.read_text())["created"]
        self._began = datetime.datetime.fromisoformat(created).timestamp()
        self._events, self._read, self._rounds = folder.events, 0, []

    def of(self, row: dict[str, Any]) -> Point:
        """The point of a row; reads what events.jsonl has got since the last call."""
        self._read_events()
        events = {"events": float(bisect.bisect_right(self._rounds, row["round"]))}
        return Point(row["round"], self._began + row["seconds"], values_of(row) | events)

    def _read_events(self) -> None:
        if not self._events.exists():
            return
        with self._events.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # still being written, or cut off by a crash
                self._read += len(line)
                event = json.loads(line)
                # trackers come and go, the series must not depend on it; a round under way is done one later
                if event["during"] != TRACKING:
                    bisect.insort(self._rounds, event["round"] + (event["during"] == "training"))


def token_of(folder: RunFolder) -> str:
    """The run's name in trackers: made before it is first used, so that a kill at no moment makes two runs of one."""
    path = folder.path / TOKEN
    with _MAKING:
        if not path.exists():
            write_atomically(path, secrets.token_hex(8).encode())
        return path.read_text()

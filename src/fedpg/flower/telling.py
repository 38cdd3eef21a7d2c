"""The status of a federation as plain lines, for logs."""

from __future__ import annotations

from fedpg.flower import snapshot
from fedpg.flower.snapshot import Status
from fedpg.flower.status import ABSENT
from fedpg.flower.wording import happening, kind, moment, named, result

MOST_TOLD = 20
"""Different mishaps printed as lines; the rest is in events.jsonl only."""
SAID_OTHERWISE = (ABSENT, "waiting for the others")
"""Ends of events that lines about agents and states tell sooner (`fedpg.flower.asking`)."""
WORTH_A_LINE = (snapshot.WAITING, snapshot.FINISHED, snapshot.STOPPED, snapshot.FAILED)


class Teller:
    """Says in plain lines what has changed since it was last asked, if it matters."""

    def __init__(self) -> None:
        self._state, self._here, self._round, self._number = "", set[int](), -1, 0
        self._told: set[tuple[int | None, str]] = set()

    def lines(self, status: Status) -> list[str]:
        """One for each: who comes and goes, evaluations, each kind of mishap once, and the end."""
        found = []
        here = {agent.number for agent in status.agents if agent.present}
        for word, changed in (("here", here - self._here), ("gone", self._here - here)):
            if changed:
                found.append(f"{word}: {named(sorted(changed))} ({len(here)} of {len(status.agents)} are there)")
        for point in status.curve:
            if point.round > self._round:
                found.append(f"round {point.round}: {result(point)}")
        for event in status.events:
            sort = (event.agent, kind(event.what))
            new = event.number > self._number and sort not in self._told and len(self._told) < MOST_TOLD
            if new and not event.what.endswith(SAID_OTHERWISE):
                self._told.add(sort)
                found.append(f"{moment(event)}: {happening(event)} (events.jsonl has all)")
        if status.phase in WORTH_A_LINE and status.state != self._state:
            found.append(status.state)
        self._here, self._state = here, status.state
        self._round = max([self._round, *(point.round for point in status.curve)])
        self._number = max([self._number, *(event.number for event in status.events)])
        return found

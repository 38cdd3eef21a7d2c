"""The seats of a federation, one for each of the agents 0 to N-1: which of them have been taken, and whose agents have left for good."""

import json
from collections.abc import Iterable
from pathlib import Path

from fedpg.errors import UserError
from fedpg.flower.pace import waiting_line
from fedpg.runs.folder import write_atomically

SEATS_FILE = "seats.json"
"""The file's name in the folder of the federation."""
JOINED = "joins the running federation"
CAME_BACK = "is back, after it had left for good"
LEFT = "has left for good: nobody waits for it any more"


class Seats:
    """A record of seats, in a file that a restarted server finds again.

    A seat is free until its agent is there for the first time. The server waits neither for a free seat nor for an agent that has left.

    Args:
        count: N.
        path: the file; None: the record is in memory only.

    Attributes:
        taken: the agents that have ever been there.
        left: those of them that have left for good.
    """

    def __init__(self, count: int, path: Path | None = None) -> None:
        self.count, self._path = count, path
        self.taken, self.left = set[int](), set[int]()
        if path is not None and path.exists():
            try:
                kept = json.loads(path.read_bytes())
                self.taken, self.left = ({agent for agent in range(count) if agent in kept[name]} for name in ("taken", "left"))
            except (ValueError, KeyError, TypeError):
                raise UserError(f"{path} is damaged: delete it, and the server takes every seat for free until its agent is back") from None

    @property
    def members(self) -> set[int]:
        """The agents that have been there and have not left."""
        return self.taken - self.left

    @property
    def free(self) -> set[int]:
        """The seats that no agent has ever taken."""
        return set(range(self.count)) - self.taken - self.left

    def arrive(self, present: set[int]) -> dict[int, str]:
        """Records who is there; for each agent that was no member before, a line that says what it did."""
        news = {agent: CAME_BACK if agent in self.left else JOINED for agent in sorted(present - self.members)}
        if news:
            self.taken, self.left = self.taken | present, self.left - present
            self._write()
        return news

    def leave(self, agent: int) -> None:
        """Records that an agent has left for good."""
        self.left.add(agent)
        self._write()

    def waiting_line(self, present: set[int], needed: int, since: str) -> str:
        """One line that says for whom the server waits until `needed` agents are there.

        >>> seats = Seats(4)
        >>> seats.arrive({0, 1})
        {0: 'joins the running federation', 1: 'joins the running federation'}
        >>> seats.waiting_line({0}, 2, "14:03:10")
        'waiting for agent 1 since 14:03:10'
        >>> seats.waiting_line({0, 1}, 3, "14:03:10")
        'waiting for 1 more agent since 14:03:10: seats 2, 3 are free'
        >>> seats.waiting_line({0, 1}, 4, "14:03:10")
        'waiting for agents 2, 3 since 14:03:10'
        """
        missing, short = self.members - present, needed - len(present)
        if short > len(missing):
            if short < len(missing | self.free):
                more = f"{short} more agent{'s' if short > 1 else ''}"
                return f"waiting for {more} since {since}: {_seats(self.free)} free"
            missing |= self.free
        return waiting_line(missing, since, short)

    def _write(self) -> None:
        if self._path is not None:
            write_atomically(self._path, json.dumps({"taken": sorted(self.taken), "left": sorted(self.left)}).encode())


def _seats(numbers: Iterable[int]) -> str:
    names = [str(number) for number in sorted(numbers)]
    return f"seat {names[0]} is" if len(names) == 1 else f"seats {', '.join(names)} are"

"""How long a server waits for its agents: as long as they usually take, and not for those that are known to be slow."""

import datetime
from collections import Counter, defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Any

FACTOR, LEAST, FIRST = 4.0, 10.0, 120.0
"""The deadline: so many times the median of what each agent took last, at least so many seconds, and so many before anyone has answered.
Only the last answer counts: in its first round an agent compiles."""
ENOUGH = 3
"""How many answers make a median."""
UNUSUAL = 5.0
"""Seconds beyond twice the usual time after which the server says for whom it waits."""


def clock() -> str:
    """The time of day, as people read it."""
    return f"{datetime.datetime.now():%H:%M:%S}"


def waiting_line(agents: Iterable[int], since: str, needed: int = 0) -> str:
    """One line that says for whom the server waits.

    >>> waiting_line([2], "14:03:10"), waiting_line([0, 2], "14:03:10", 1)
    ('waiting for agent 2 since 14:03:10', 'waiting for one of the agents 0, 2 since 14:03:10')
    """
    names = ", ".join(map(str, sorted(agents)))
    count = len(list(agents))
    if count == 1:
        return f"waiting for agent {names} since {since}"
    some = "" if needed in (0, count) else f"{'one' if needed == 1 else needed} of the "
    return f"waiting for {some}agents {names} since {since}"


class Pace:
    """What agents usually take. `fixed`: a deadline that does not adapt; 0: one that does."""

    def __init__(self, fixed: float) -> None:
        self._fixed, self._slow = fixed, set[int]()
        self._last, self._answers = defaultdict(dict[int, float]), Counter[str]()  # kind -> agent -> seconds, and how many answers

    def took(self, kind: str, agent: int, seconds: float) -> None:
        """An agent took so long for a task of a kind; infinitely long if it has not answered."""
        if seconds < self.deadline(kind):
            self._slow.discard(agent)
            self._last[kind][agent] = seconds
            self._answers[kind] += 1
        else:
            self._slow.add(agent)

    def usual(self, kind: str) -> float | None:
        """The median; None if too few have answered."""
        return median(self._last[kind].values()) if self._answers[kind] >= ENOUGH else None

    def deadline(self, kind: str) -> float:
        """Seconds to wait for answers to tasks of a kind."""
        usual = self.usual(kind)
        return self._fixed or (FIRST if usual is None else max(LEAST, FACTOR * usual))

    def only_slow(self, agents: set[int]) -> bool:
        """Whether all of these did not keep the last deadline; with a fixed deadline everyone is waited for."""
        return not self._fixed and agents <= self._slow


class Patience:
    """How long one exchange waits: for everyone but slow agents, and, if the rules say so, only for some.

    Args:
        remote: the agents (`fedpg.flower.server.RemoteAgents`).
        kind: of the task.
        asked: how many agents were asked.
    """

    def __init__(self, remote: Any, kind: str, asked: int) -> None:
        self._remote, self._kind, self._asked, self._told, self._since = remote, kind, asked, set[int](), clock()

    def is_over(self, waiting: set[int], elapsed: float) -> bool:
        """Whether the exchange may end although these agents have not answered. Says for whom it waits unusually long."""
        rules, pace = self._remote.rules, self._remote.pace
        answered, waiting = self._asked - len(waiting), waiting - self._remote.seats.left
        if not waiting:
            return True
        if answered >= self._remote.quorum and (pace.only_slow(waiting) or 0 < rules.min_agents_per_round <= answered):
            return True
        if elapsed > 2 * (pace.usual(self._kind) or LEAST) + UNUSUAL and waiting != self._told:
            self._told = waiting
            self._remote.slow(waiting, self._since)
        return False

"""What went wrong in the agents' environments, with the round in which it did."""

from __future__ import annotations

from typing import Any

from fedpg.envs.host import Host


class EventLog:
    """Takes a host's events, which know only their environment's index, and says which seed, agent and round they belong to.

    Args:
        host: the environments in Python; None if there are none, and then nothing ever happens.
        agents: N.
    """

    def __init__(self, host: Host | None, agents: int) -> None:
        self._host, self._agents = host, agents
        self._events: list[dict[str, Any]] = []
        self.live = host is not None

    def collect(self, round: int, during: str) -> None:
        """Empties the host's list; what is on it happened in `round`, `during` training, evaluation or the warm-up."""
        if not self.live:
            return
        found, self._host.events[:] = list(self._host.events), []
        for index, what in found:
            seed, agent = divmod(int(index), self._agents)
            self._events.append({"round": round, "during": during, "seed": seed, "agent": agent, "what": what})

    def take(self) -> list[dict[str, Any]]:
        """The events since the last call."""
        taken, self._events = self._events, []
        return taken

"""The log of failures in the agents' environments."""

from collections.abc import Callable
from typing import Any

from fedpg.envs.host import Host


class EventLog:
    """Collects the events of a host, which knows only an environment's index, and adds seed, agent and round.

    Args:
        host: the environments that run in Python; None if there are none, and then nothing ever happens.
        agents: N.

    Attributes:
        live: whether there can be events.
    """

    def __init__(self, host: Host | None, agents: int) -> None:
        self._host, self._agents = host, agents
        self._events: list[dict[str, Any]] = []
        self.live = host is not None

    def collect(self, round: int, during: str) -> None:
        """Moves the host's events here; they happened in `round`, `during` training, evaluation or the warm-up."""
        if self._host is None:
            return
        found, self._host.events[:] = list(self._host.events), []
        for index, what in found:
            seed, agent = divmod(int(index), self._agents)
            self._events.append({"round": round, "during": during, "seed": seed, "agent": agent, "what": what})

    def listen(self, write: Callable[[], None] | None) -> None:
        """Nothing: here events can be taken after every call of the engine, which is when they happen."""

    def take(self) -> list[dict[str, Any]]:
        """The events since the last call."""
        taken, self._events = self._events, []
        return taken

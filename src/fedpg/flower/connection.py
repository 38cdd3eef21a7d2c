"""The connection of an agent to its server: fetches one packet after the other, and brings the answers, until it is stopped."""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from fedpg.errors import UserError, one_line
from fedpg.flower.fleet import HEARTBEAT_SECONDS, Fleet, MessageLost, answer_to, packet_of
from fedpg.flower.keys import own_key, private_key
from fedpg.runs.folder import write_atomically

SHORTEST_PAUSE, LONGEST_PAUSE, PART = 0.2, 3.0, 0.1
"""Seconds between two questions for a message: this part of the time since the last message, within bounds."""
AWAY_PAUSE = 1.0
"""Seconds between two tries while the server is away."""
REFUSED_SECONDS = 100.0
"""How long the server may refuse an agent that it has welcomed: an earlier process of this agent may still count as connected."""
PARTING_SECONDS = 2.0
"""How long the last answer, and the word that this agent is away, may take to leave."""
UNREACHABLE = (502, 503, 504)
"""Codes with which a proxy says that the server itself is away."""
NODE, KEY = "node", "node.key"
"""Files: Flower's number of this agent, and the key of an agent that was given none."""

AnswerPacket = Callable[[bytes], bytes]
"""From a packet to the packet that answers it; never raises."""


class Connection:
    """A connection that lasts from its construction until `stop`, also while the server is away.

    Args:
        server: HOST:PORT of the server.
        agent: the agent's number.
        answer: packet -> packet; never raises.
        folder: the agent's own.
        keys: the folder with ca.crt and agent-I; None: neither encryption nor authentication.
        tell: called with one line for each thing that people at the agent may want to know.
    """

    def __init__(self, server: str, agent: int, answer: AnswerPacket, folder: Path, keys: Path | None, tell: Callable[[str], None]) -> None:
        self._server, self._answer, self._tell, self._number = server, answer, tell, folder / NODE
        key = private_key(keys / f"agent-{agent}") if keys else own_key(folder / KEY)
        self._fleet = Fleet(server, (keys / "ca.crt").read_bytes() if keys else None, key)
        self._stopped, self._unknown, self._away = threading.Event(), threading.Event(), False
        self._refused_since, self._last = 0.0, time.monotonic()
        self._error: BaseException | None = None
        works = {"connection": self._run, "heartbeat": self._beat}
        self._threads = [threading.Thread(target=work, name=name, daemon=True) for name, work in works.items()]
        for thread in self._threads:
            thread.start()

    def wait(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Returns when `is_over`; raises a `UserError` if the server refuses this agent."""
        while not is_over():
            self._threads[0].join(SHORTEST_PAUSE)
            if self._error:
                raise self._error

    def stop(self) -> None:
        """Ends it, after the answer that is being sent, and tells the server."""
        self._stopped.set()
        self._threads[0].join(PARTING_SECONDS)
        leaving = threading.Thread(target=self._leave, daemon=True)
        leaving.start()
        leaving.join(PARTING_SECONDS)
        self._fleet.close()

    def _leave(self) -> None:
        with contextlib.suppress(httpx.HTTPError, ValueError, RuntimeError):  # the server may be away, or the time be up
            if self._fleet.node:
                self._fleet.leave(self._fleet.node)

    def _run(self) -> None:
        try:
            self._last = time.monotonic()
            while not self._stopped.is_set():
                if self._unknown.is_set() or not self._fleet.node:
                    self._unknown.clear()
                    self._persist(self._connect)
                elif not self._persist(self._receive):
                    pause = PART * (time.monotonic() - self._last)
                    self._stopped.wait(min(max(pause, SHORTEST_PAUSE), LONGEST_PAUSE))
        except BaseException as error:
            self._error = error

    def _persist(self, work: Callable[[], object]) -> object:
        """What `work` returns; tries again while the server is away. None if it refuses, or this is stopped."""
        while True:
            try:
                result = work()
            except httpx.HTTPStatusError as error:
                if error.response.status_code not in UNREACHABLE:
                    self._is_refused(error)
                    return None
                why = f"code {error.response.status_code}"
            except (httpx.TransportError, ValueError) as error:
                why = str(error) or type(error).__name__
            else:
                if self._away:
                    self._tell("the server is back")
                self._away, self._refused_since = False, 0.0
                return result
            if not self._away:
                self._tell(one_line(f"{self._server} is away ({why}): waiting"))
            self._away = True
            if self._stopped.wait(AWAY_PAUSE):
                return None

    def _is_refused(self, error: httpx.HTTPStatusError) -> None:
        """The server does not take this agent, or not any more: it tries to come in again, for a while."""
        self._unknown.set()
        reason = one_line(f"code {error.response.status_code}: {error.response.text[:200]}")
        if not self._refused_since:
            self._refused_since = time.monotonic()
            self._tell(f"the server refuses this agent ({reason}): trying again")
        if time.monotonic() - self._refused_since > REFUSED_SECONDS:
            right = "is its key among the server's and used by nobody else, and is its clock right?"
            raise UserError(f"the server refuses this agent ({reason}): {right}")
        self._stopped.wait(AWAY_PAUSE)

    def _connect(self) -> None:
        self._fleet.connect(last_node(self._number.parent))
        write_atomically(self._number, str(self._fleet.node).encode())

    def _receive(self) -> bool:
        """Whether a message came, which is then answered."""
        try:
            message = self._fleet.receive(self._stopped.is_set)
            if message is None:
                return False
            answer = answer_to(message, self._answer(packet_of(message)))
            self._persist(lambda: self._fleet.send(answer))
        except MessageLost as lost:
            self._tell(one_line(f"a message was lost: {lost}"))
        self._last = time.monotonic()
        return True

    def _beat(self) -> None:
        """Shows, also during a long task, that this agent is there."""
        while not self._stopped.wait(0.8 * HEARTBEAT_SECONDS):
            with contextlib.suppress(httpx.TransportError, ValueError, RuntimeError):  # `_run` tells that the server is away
                try:
                    known = not self._fleet.node or self._fleet.beat()
                except httpx.HTTPStatusError as error:
                    known = error.response.status_code in UNREACHABLE
                if not known:
                    self._unknown.set()


def last_node(folder: Path) -> int:
    """Flower's number of the agent that has this folder, when it was last connected; 0: never."""
    text = (folder / NODE).read_text() if (folder / NODE).exists() else ""
    return int(text) if text.isdigit() else 0

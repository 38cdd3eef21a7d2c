"""The way to the agents through Flower: which SuperNode is which agent, a task to each, and their answers by a deadline.

A node that appears is greeted; when it says which agent it is, that agent is present. One that lets a deadline pass is greeted
again, and is absent until it answers: a round waits for it once, not every time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedpg.flower import packets, tasks
from fedpg.flower.asking import Terms
from fedpg.flower.names import PACKET, RECORD
from fedpg.flower.packets import Refused

POLL = 0.1
"""Seconds between looks for answers."""
LOOK = 1.0
"""Seconds between looks for new nodes."""
GREETING = 60.0
"""Seconds in which a node must say who it is; then it is asked again."""
KIND = "train"
"""The only type of message that our ClientApp knows."""


class FlowerLink:
    """Sends packets through a Grid.

    Args:
        grid: what Flower gives to a ServerApp.
        terms: what all tasks of the run have in common.
        owner: node -> the agent that it must be, by its key; None where keys say nothing (no node authentication).
        note: told of nodes that are not let in, one line.
        arrived: told whose answer has come, when it comes: the answers are read when all have.
    """

    def __init__(
        self,
        grid: Grid,
        terms: Terms,
        owner: Callable[[Any], int | None] = lambda node: None,
        note: Callable[[str], None] = print,
        arrived: Callable[[int], None] = lambda agent: None,
    ) -> None:
        self._grid, self._terms, self._owner, self._note, self._arrived = grid, terms, owner, note, arrived
        self._seats: dict[int, int] = {}  # agent -> node
        self._greeted: dict[int, tuple[str, float]] = {}  # node -> message, when
        self._serial, self._looked = 0, 0.0

    def present(self) -> set[int]:
        """The agents whose nodes have said who they are."""
        self._look()
        return set(self._seats)

    def ask(self, packets: dict[int, bytes], seconds: float) -> dict[int, bytes | str]:
        """Sends each agent its packet, and waits for the answers, `seconds` at most."""
        began = time.monotonic()
        asked = {agent: self._push(self._seats[agent], packet, seconds) for agent, packet in packets.items() if agent in self._seats}
        found: dict[int, bytes | str] = {agent: "its node has gone" for agent in packets if agent not in asked}
        waiting = {message: agent for agent, message in asked.items() if message}
        found |= {agent: "could not be sent" for agent, message in asked.items() if not message}
        while waiting and time.monotonic() - began < seconds:
            for reply in self._grid.pull_messages(list(waiting)):
                agent = waiting.pop(reply.metadata.reply_to_message_id)
                found[agent] = _content(reply)
                if reply.has_error():
                    self._doubt(agent)
                else:
                    self._arrived(agent)
            if waiting:
                time.sleep(POLL)
                self._look()
        for agent in waiting.values():
            found[agent] = f"no answer within {seconds:g} seconds"
            self._doubt(agent)
        return found

    def _doubt(self, agent: int) -> None:
        """Absent until its node, or another, says that it is this agent."""
        if (node := self._seats.pop(agent, None)) is not None:
            self._greet(node)

    def _push(self, node: int, packet: bytes, seconds: float) -> str | None:
        """The message's name; None if it could not be sent."""
        content = RecordDict({RECORD: ConfigRecord({PACKET: packet})})
        return next(iter(self._grid.push_messages([Message(content, node, KIND, ttl=seconds + 5.0)])), None)

    def _look(self) -> None:
        """Lets go of nodes that have left, greets new ones, and seats those that have said who they are."""
        if time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        nodes = {info.node_id: info for info in self._grid.get_nodes()}
        self._seats = {agent: node for agent, node in self._seats.items() if node in nodes}
        self._greeted = {node: greeting for node, greeting in self._greeted.items() if node in nodes}
        for node in nodes.keys() - self._seats.values():
            if node not in self._greeted or time.monotonic() - self._greeted[node][1] > GREETING:
                self._greet(node)
        by_message = {message: node for node, (message, _) in self._greeted.items() if message}
        for reply in self._grid.pull_messages(list(by_message)) if by_message else ():
            node = by_message[reply.metadata.reply_to_message_id]
            try:
                self._seat(nodes[node], _content(reply))
                del self._greeted[node]
            except Refused as refused:
                self._greeted[node] = "", time.monotonic()  # it is asked again later
                self._note(f"node {node} is not let in: {refused}")

    def _greet(self, node: int) -> None:
        self._serial += 1
        task = tasks.Task(tasks.HELLO, self._terms.run, self._terms.config, serial=self._serial, seconds=GREETING)
        self._greeted[node] = self._push(node, packets.pack(tasks.write(task), {}), GREETING) or "", time.monotonic()

    def _seat(self, node: Any, answer: bytes | str) -> None:
        """Raises `Refused` for a node that is not who it says."""
        if isinstance(answer, str):
            raise Refused(answer)
        said = tasks.read(tasks.Answer, packets.unpack(answer, 2 * packets.LONGEST_HEADER).header)
        if said.run != self._terms.run or said.error:
            raise Refused(said.error or "it answers for another run")
        if not 0 <= said.agent < self._terms.agents:
            raise Refused(f"it says that it is agent {said.agent}, of {self._terms.agents}")
        if (owner := self._owner(node)) is not None and owner != said.agent:
            raise Refused(f"it says that it is agent {said.agent}, but has the key of agent {owner}")
        if said.agent in self._seats:
            raise Refused(f"there is an agent {said.agent} already")
        self._seats[said.agent] = node.node_id


def _content(reply: Message) -> bytes | str:
    """The packet of a reply; one line if there is none."""
    if reply.has_error():
        return tasks.one_line(f"Flower reports error {reply.error.code}: {reply.error.reason}")
    try:
        packet = reply.content[RECORD][PACKET]
    except (KeyError, TypeError):
        return "an answer without a packet"
    return packet if isinstance(packet, bytes) else "an answer without a packet"

"""The way to the agents through Flower: which node is which agent, a task to each, and their answers by a deadline.

A node that appears gets a `hello`; when it answers which agent it is, that agent is present. A node that misses a deadline, goes away
or connects anew gets a new `hello` and is absent until it answers: a round waits for it once, not every time.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedpg.errors import one_line
from fedpg.flower.protocol import MAX_HEADER, PACKET, RECORD, Answer, Refused, Task, pack, unpack
from fedpg.flower.server import RunTerms

POLL = 0.1
"""Seconds between questions for answers."""
NODE_POLL = 1.0
"""Seconds between questions for new nodes."""
FIRST_HELLO, HELLO_SECONDS, MAX_HELLOS = 8.0, 60.0, 8
"""How long a node has to answer a `hello` before it gets another: at first, and at most, as the time doubles; and how many may be open.
The first time is short: an agent may have been killed with the `hello` in its hands."""
LATE_SECONDS = 600.0
"""How long after its time is up an answer may still come."""


UNAVAILABLE = 5
"""Flower's code for a node that is away."""


class Hello(NamedTuple):
    """The hellos that a node has not answered: their messages, when it gets another, and how long it has then."""

    messages: tuple[str, ...] = ()
    again: float = 0.0
    pause: float = FIRST_HELLO


class FlowerLink:
    """A link (`fedpg.flower.server.Link`) that sends packets through Flower's Grid.

    Args:
        grid: what Flower gives to a ServerApp.
        owner: node -> the agent whose key it has; None if there are no keys.
        note: called with one line for each node that is refused.
    """

    def __init__(self, grid: Grid, terms: RunTerms, owner: Callable[[Any], int | None], note: Callable[[str], None]) -> None:
        self._grid, self._terms, self._owner, self._note = grid, terms, owner, note
        self._nodes: dict[int, int] = {}  # agent -> node
        self._activated: dict[int, str] = {}  # node -> when it connected
        self._waited_for: set[int] = set()  # nodes whose answers `ask` waits for
        self._hellos: dict[int, Hello] = {}  # by node
        self._late: dict[str, tuple[int, int, float]] = {}  # message -> agent, node, when its time was up
        self._came: dict[int, bytes] = {}  # agent -> an answer that came late
        self._leaving: dict[int, int] = {}  # agent that leaves for good -> node
        self._serial, self._looked = 0, 0.0

    def known(self) -> dict[int, int]:
        """The agents that were there at the last look, and their nodes; for other threads."""
        return dict(self._nodes)

    def present(self) -> set[int]:
        """The agents whose nodes have said who they are."""
        self._look()
        return set(self._nodes)

    def ask(
        self, packets: dict[int, bytes], seconds: float, enough: Callable[[set[int], float], bool] = lambda waiting, elapsed: False
    ) -> Iterator[tuple[int, bytes | str]]:
        """Sends each agent its packet, and yields the answers that come within `seconds`; a line where there is none.

        `enough` is called with the agents that have not answered and the seconds so far; True ends the waiting.
        """
        began, waiting, places = time.monotonic(), {}, {}  # message -> agent; agent -> its node, and when that connected
        for agent, packet in packets.items():
            if agent not in self._nodes:
                yield agent, "its node has gone"
            elif message := self._push(self._nodes[agent], packet, seconds):
                waiting[message], places[agent] = agent, (node := self._nodes[agent], self._activated.get(node))
            else:
                yield agent, "could not be sent"
        while waiting and (elapsed := time.monotonic() - began) < seconds and not enough(set(waiting.values()), elapsed):
            self._waited_for = {places[agent][0] for agent in waiting.values()}
            for reply in self._grid.pull_messages(list(waiting)):
                agent = waiting.pop(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    self._drop(agent)
                yield agent, _packet_of(reply)
            if waiting:
                time.sleep(POLL)
                self._look()
            for message, agent in list(waiting.items()):
                node, activated = places[agent]
                if node not in self._activated or self._activated[node] != activated:
                    del waiting[message]
                    self._give_up(message, agent, node)
                    yield agent, "it connected anew" if node in self._activated else "its node has gone"
        self._waited_for = set()
        why = "not waited for" if waiting and elapsed < seconds else f"no answer within {seconds:g} seconds"
        for message, agent in waiting.items():
            self._give_up(message, agent, places[agent][0])
            yield agent, why

    def _give_up(self, message: str, agent: int, node: int) -> None:
        """Nobody waits for the answer to a message any more; it may still come."""
        self._late[message] = agent, node, time.monotonic()
        self._drop(agent)

    def late(self) -> dict[int, bytes]:
        """The answers that have come since their time was up, each once."""
        self._look()
        taken, self._came = self._came, {}
        return taken

    def tell(self, kind: str, text: str, seconds: float) -> None:
        """Sends all agents that are there, or late with an answer, a line, and waits up to `seconds` until they have it."""
        self._look()
        late = {agent: node for agent, node, _ in self._late.values() if agent not in self._nodes and node in self._activated}
        self._nodes |= late
        for node in late.values():
            self._hellos.pop(node, None)
        task = Task(kind, self._terms.run, "", seconds=seconds, text=text)
        for _ in self.ask(dict.fromkeys(self._nodes, pack(task, {})), seconds):
            pass

    def leaving(self) -> set[int]:
        """The agents that have said that they leave for good, until `farewell`."""
        return set(self._leaving)

    def farewell(self, agent: int) -> None:
        """Tells an agent that the server knows that it leaves; it is not there any more."""
        node = self._leaving.pop(agent, None) or self._nodes.get(agent)
        self._nodes.pop(agent, None)
        if node is not None:
            self._hellos[node] = _later()
            self._push(node, pack(Task("over", self._terms.run, ""), {}), HELLO_SECONDS)

    def _drop(self, agent: int) -> None:
        """Makes an agent absent until a node says again that it is this agent."""
        if (node := self._nodes.pop(agent, None)) is not None:
            self._send_hello(node)

    def _push(self, node: int, packet: bytes, seconds: float) -> str | None:
        """The message's id; None if it could not be sent."""
        content = RecordDict({RECORD: ConfigRecord({PACKET: packet})})
        return next(iter(self._grid.push_messages([Message(content, node, "train", ttl=seconds + LATE_SECONDS)])), None)

    def _look(self) -> None:
        """Forgets nodes that have left, sends new ones a `hello`, and accepts those that have answered it."""
        if time.monotonic() - self._looked < NODE_POLL:
            return
        self._looked = time.monotonic()
        nodes, before = {info.node_id: info for info in self._grid.get_nodes()}, self._activated
        self._activated = {node: info.last_activated_at for node, info in nodes.items()}
        self._nodes = {agent: node for agent, node in self._nodes.items() if node in nodes}
        for agent, node in self._nodes.items():  # `ask` says so itself of those that it waits for
            if node not in self._waited_for and before.get(node, self._activated[node]) != self._activated[node]:
                self._note(f"agent {agent} connected anew")
        self._hellos = {node: hello for node, hello in self._hellos.items() if node in nodes}
        for node in set(nodes).difference(self._nodes.values(), self._leaving.values()):
            if node not in self._hellos or time.monotonic() > self._hellos[node].again:
                self._send_hello(node)
        self._collect_late(nodes)
        by_message = {message: node for node, hello in self._hellos.items() for message in hello.messages}
        for reply in self._grid.pull_messages(list(by_message)) if by_message else ():
            node = by_message[reply.metadata.reply_to_message_id]
            try:
                if node not in self._hellos:
                    continue  # an earlier one was answered too
                if reply.has_error() and reply.error.code == UNAVAILABLE:
                    del self._hellos[node]  # it was away, and gets another
                    continue
                self._accept(nodes[node], _packet_of(reply))
                del self._hellos[node]
            except Refused as refused:
                self._hellos[node] = _later()
                self._note(f"node {node} is refused: {refused}")
                self._push(node, pack(Task("refused", self._terms.run, "", text=str(refused)), {}), HELLO_SECONDS)

    def _collect_late(self, nodes: dict[int, Any]) -> None:
        """Takes answers whose time was up; who has sent one is there again."""
        self._late = {message: late for message, late in self._late.items() if time.monotonic() - late[2] < LATE_SECONDS}
        for reply in self._grid.pull_messages(list(self._late)) if self._late else ():
            agent, node, _ = self._late.pop(reply.metadata.reply_to_message_id)
            packet = _packet_of(reply)
            if isinstance(packet, bytes) and agent not in self._nodes and node in nodes:
                self._came[agent], self._nodes[agent] = packet, node
                self._hellos.pop(node, None)

    def _send_hello(self, node: int) -> None:
        self._serial += 1
        task = Task("hello", self._terms.run, self._terms.config, serial=self._serial, seconds=HELLO_SECONDS)
        before, sent = self._hellos.get(node, Hello()), self._push(node, pack(task, {}), HELLO_SECONDS)
        # An answer to any of the last ones will do.
        messages = (*before.messages, sent)[-MAX_HELLOS:] if sent else before.messages
        self._hellos[node] = Hello(messages, time.monotonic() + before.pause, min(2 * before.pause, HELLO_SECONDS))

    def _accept(self, node: Any, answer: bytes | str) -> None:
        """Makes the agent of a node present; raises `Refused` for a node that is not who it says."""
        if isinstance(answer, str):
            raise Refused(answer)
        said, _ = unpack(answer, Answer, 2 * MAX_HEADER)
        if said.run != self._terms.run or said.error:
            raise Refused(said.error or "it answers for another run")
        if not 0 <= said.agent < self._terms.agents:
            raise Refused(f"it says that it is agent {said.agent}, of {self._terms.agents}")
        if not said.leaving:
            self._check_shapes(said.shapes)
        if (owner := self._owner(node)) is not None and owner != said.agent:
            raise Refused(f"it says that it is agent {said.agent}, but has the key of agent {owner}")
        if said.agent in self._nodes:
            raise Refused(f"there is an agent {said.agent} already")
        (self._leaving if said.leaving else self._nodes)[said.agent] = node.node_id

    def _check_shapes(self, theirs: str) -> None:
        if theirs.partition(" #")[0] != (ours := self._terms.shapes.partition(" #")[0]) and ours:
            raise Refused(f"its environment has {theirs.partition(' #')[0][:100]}; this federation has {ours}")
        if self._terms.shapes not in ("", theirs):
            raise Refused("its params have other shapes: is its copy of the policy or the algorithm the server's?")


def _later() -> Hello:
    """For a node that gets no hello for a while."""
    return Hello((), time.monotonic() + HELLO_SECONDS, HELLO_SECONDS)


def _packet_of(reply: Message) -> bytes | str:
    """The packet of a reply; one line if there is none."""
    if reply.has_error():
        return one_line(f"Flower reports error {reply.error.code}: {reply.error.reason}")
    try:
        packet = reply.content[RECORD][PACKET]
    except (KeyError, TypeError):
        packet = None
    return packet if isinstance(packet, bytes) else "an answer without a packet"

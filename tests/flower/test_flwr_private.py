"""The calls of Flower that we make ourselves, on its own SuperLink service: every packet gets one answer, and no app is ever opened."""

from __future__ import annotations

import signal
import threading
import time

import pytest

pytest.importorskip("flwr")

import uvicorn
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.runtime_pb2 import PushAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.superlink.main import create_app

from fedpg.errors import UserError
from fedpg.flower import connection as connections
from fedpg.flower import fleet, flwr_private
from fedpg.flower.connection import KEY, NODE, Connection
from fedpg.flower.flwr_private import Control, OpenRun, RunLost
from fedpg.flower.processes import free_port
from fedpg.flower.protocol import PACKET, RECORD
from fedpg.flower.superlink import APP

SECRET = b"between a SuperLink and its server app"


class SuperLink:
    """Flower's service in this process."""

    def __init__(self, port=0):
        self.app = create_app()
        self.app.state.superexec_auth_secret = SECRET
        self.server = uvicorn.Server(uvicorn.Config(self.app, "127.0.0.1", port, log_config=None, access_log=False))
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        self.address = f"127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"
        self.control = Control(self.address, None)
        self.runs: list[tuple[int, OpenRun]] = []

    def run(self, secret=SECRET, is_over=lambda: False):
        """A new run; an earlier one is stopped."""
        if self.runs:
            self.control.stop_run(self.runs[-1][0])
        number = self.control.start_run(APP)
        self.runs.append((number, OpenRun(self.address, secret, None, number, is_over)))
        return self.runs[-1][1]

    def stop(self):
        for _, run in self.runs:
            run.close(done=True)
        self.control.close()
        self.server.should_exit = True
        self.thread.join(10.0)


@pytest.fixture
def superlink():
    service = SuperLink()
    yield service
    service.stop()


class Agent:
    """A connection that remembers what it was told."""

    def __init__(self, address, folder, answer=lambda data: data[::-1], keys=None):
        self.told: list[str] = []
        self.connection = Connection(address, 0, answer, folder, keys, self.told.append)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.connection.stop()


def node_of(run, seconds=10.0):
    """The node that is connected."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if nodes := list(run.get_nodes()):
            return nodes[0].node_id
        time.sleep(0.05)
    raise AssertionError("nobody came")


def send(run, content, node=None):
    return run.push_messages([Message(content, node or node_of(run), "train", ttl=60.0)])[0]


def packet(content):
    return RecordDict({RECORD: ConfigRecord({PACKET: content})})


def answer_to(run, message, seconds=10.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for reply in run.pull_messages([message]):
            return reply.content[RECORD][PACKET]
        time.sleep(0.02)
    return None


def test_answers_come_back_one_after_the_other(superlink, tmp_path):
    run = superlink.run()
    with Agent(superlink.address, tmp_path) as agent:
        for content in (b"one", b"two" * 100_000):
            assert answer_to(run, send(run, packet(content))) == content[::-1]
        number = node_of(run)
        assert (tmp_path / NODE).read_text() == str(number)
        assert (tmp_path / KEY).stat().st_mode & 0o77 == 0
    assert agent.told == []
    assert list(run.get_nodes()) == [], "it says that it leaves"


def test_a_message_that_is_not_ours_is_told_and_the_next_is_answered(superlink, tmp_path):
    run = superlink.run()
    with Agent(superlink.address, tmp_path) as agent:
        send(run, RecordDict({"run": ConfigRecord({"code": "import os"})}))
        assert answer_to(run, send(run, packet(b"ours"))) == b"sruo"
    assert agent.told == ["a message was lost: it holds no packet"]


def test_who_does_not_know_the_secret_gets_no_run(superlink, monkeypatch):
    monkeypatch.setattr(flwr_private, "START_SECONDS", 1.0)
    with pytest.raises(RunLost):
        superlink.run(b"guessed")


def test_an_agent_waits_for_a_server_that_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "AWAY_PAUSE", 0.2)
    port = free_port()
    with Agent(f"127.0.0.1:{port}", tmp_path) as agent:
        time.sleep(0.6)
        service = SuperLink(port)
        try:
            run = service.run()
            assert answer_to(run, send(run, packet(b"late"))) == b"etal"
        finally:
            agent.connection.stop()
            service.stop()
    assert [line.partition(" (")[0] for line in agent.told] == [f"127.0.0.1:{port} is away", "the server is back"]


def test_an_agent_that_was_killed_comes_in_again_at_once(superlink, tmp_path):
    run = superlink.run()
    killed = Connection(superlink.address, 0, lambda data: b"old", tmp_path, None, print)
    before = node_of(run)
    killed._stopped.set()  # without a word to the server
    for thread in killed._threads:
        thread.join(5.0)
    activated = next(iter(run.get_nodes())).last_activated_at
    with Agent(superlink.address, tmp_path) as agent:
        end = time.monotonic() + 10.0
        while [info.last_activated_at for info in run.get_nodes()] in ([], [activated]) and time.monotonic() < end:
            time.sleep(0.05)
        assert [info.node_id for info in run.get_nodes()] == [before]
        assert answer_to(run, send(run, packet(b"now"))) == b"won"
    assert agent.told == []
    killed._fleet.close()


def test_an_unknown_key_is_refused_in_one_line(superlink, tmp_path, monkeypatch):
    superlink.app.state.enable_supernode_auth = True
    monkeypatch.setattr(connections, "REFUSED_SECONDS", 0.3)
    monkeypatch.setattr(connections, "AWAY_PAUSE", 0.2)
    with Agent(superlink.address, tmp_path) as agent, pytest.raises(UserError, match="is its key among the server's"):
        agent.connection.wait()
    assert len(agent.told) == 1
    assert "the server refuses this agent" in agent.told[0]


def test_an_answer_to_a_run_that_has_ended_is_dropped(superlink, tmp_path):
    begun, go_on = threading.Event(), threading.Event()

    def answer(data):
        begun.set()
        go_on.wait(10.0)
        return data[::-1]

    run = superlink.run()
    with Agent(superlink.address, tmp_path, answer) as agent:
        send(run, packet(b"first"))
        assert begun.wait(10.0)
        new = superlink.run()
        go_on.set()
        assert answer_to(new, send(new, packet(b"next"))) == b"txen"
    assert len(agent.told) == 1
    assert agent.told[0].startswith("a message was lost: ")


def test_a_message_whose_content_never_comes_is_left_for_the_next(superlink, tmp_path, monkeypatch):
    """As when a server dies between a message and its content."""
    interrupts = []
    monkeypatch.setattr(fleet, "CONTENT_SECONDS", 0.5)
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        run = superlink.run()
        with Agent(superlink.address, tmp_path) as agent:
            message = Message(packet(b"lost"), node_of(run), "train", ttl=60.0)
            number = superlink.runs[-1][0]
            message.metadata.__dict__.update(_run_id=number, _src_node_id=1, _message_id=message.object_id)
            asked = PushAppMessagesRequest(messages_list=[message_to_proto(message)], message_object_trees=[get_object_tree(message)])
            run._client.PushMessages(asked)
            time.sleep(1.0)
            assert answer_to(run, send(run, packet(b"next"))) == b"txen"
        assert agent.told == ["a message was lost: its content did not come"]
    finally:
        signal.signal(signal.SIGINT, before)
    assert interrupts == []


def test_an_answer_whose_receipt_was_lost_is_completed(superlink, tmp_path, monkeypatch):
    """As when a SuperLink is stopped for longer than a call may take: the second try finds the first."""
    lost = []
    push = fleet.FleetHttpClient.PushMessages

    def lose(client, request):
        found = push(client, request)
        if not lost:
            lost.append(found)
            raise connections.httpx.ReadTimeout("stopped")
        return found

    monkeypatch.setattr(fleet.FleetHttpClient, "PushMessages", lose)
    monkeypatch.setattr(connections, "AWAY_PAUSE", 0.5)
    run = superlink.run()
    with Agent(superlink.address, tmp_path) as agent:
        message = send(run, packet(b"twice"))
        while not lost:
            time.sleep(0.01)
        began = time.monotonic()
        assert run.pull_messages([message]) == []
        assert time.monotonic() - began < 0.4, "the server does not wait for the content of one reply"
        assert answer_to(run, message) == b"eciwt"
    assert agent.told == [f"{superlink.address} is away (stopped): waiting", "the server is back"]


def test_an_answer_that_nobody_can_read_is_dropped(superlink, tmp_path, monkeypatch):
    """A false agent must not end the run of the others."""
    deflate = fleet.get_all_nested_objects

    class Garbage:
        def __init__(self, name):
            self.name = name

        def deflate(self):
            return b"garbage"

    monkeypatch.setattr(fleet, "get_all_nested_objects", lambda message: {name: Garbage(name) for name in deflate(message)})
    run = superlink.run()
    with Agent(superlink.address, tmp_path):
        assert answer_to(run, send(run, packet(b"false")), 1.5) is None
        monkeypatch.setattr(fleet, "get_all_nested_objects", deflate)
        assert answer_to(run, send(run, packet(b"true"))) == b"eurt"

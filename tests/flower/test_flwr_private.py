"""The runner, on Flower's own SuperNode service: every task gets one reply, and the app that came with the run is never opened."""

from __future__ import annotations

import hashlib
import signal
import threading
import time

import pytest

pytest.importorskip("flwr")

import uvicorn
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.app.message.message import make_message
from flwr.app.metadata import Metadata
from flwr.common.constant import SubStatus
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_object_tree, iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.start_client_internal import _insert_message

from fedpg.flower.flwr_private import TaskRunner
from fedpg.flower.protocol import PACKET, RECORD

SECRET = b"between a SuperNode and its runner"
RUN, OTHER_RUN, NODE, FAB = 7, 8, 11, b"this is no app: whoever opens it fails"


class SuperNode:
    """Flower's service of a SuperNode, with the state that its connection to a SuperLink would fill and empty."""

    def __init__(self):
        stores = ObjectStoreFactory()
        states = NodeStateFactory(objectstore_factory=stores)
        self.state, self.store = states.state(), stores.store()
        self.state.set_node_id(NODE)
        config = uvicorn.Config(create_app(states, SECRET), "127.0.0.1", 0, log_config=None, access_log=False)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        self.address = f"127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"
        for number in (RUN, OTHER_RUN):
            run = Run.create_empty(number)
            run.fab_hash, run.series_id = hashlib.sha256(FAB).hexdigest(), number
            self.state.store_run(run)
            self.state.store_fab(Fab(run.fab_hash, FAB, {}))
            self.state.set_run_series_context(number, Context(number, NODE, {}, RecordDict(), {}, series_id=number))

    def deliver(self, content: RecordDict, run: int = RUN) -> Message:
        """As if the SuperLink had sent a message."""
        message = message_of(content, run)
        _insert_message(message, self.state, self.store)
        assert self.task(run)
        return message

    def task(self, run: int) -> int:
        """The number of a new task of a run."""
        return self.state.create_task(task_type=TaskType.CLIENT_APP, run_id=run, fab_hash=self.state.get_run(run).fab_hash)

    def announce(self, content: RecordDict) -> tuple[str, int]:
        """A message whose content is still on its way, and the number of its task."""
        message = message_of(content, RUN)
        message.metadata.__dict__["_message_id"] = message.object_id
        self.store.preregister(RUN, get_object_tree(message))
        self.state.store_message(message)
        return message.object_id, self.task(RUN)

    def give_up(self, announced: tuple[str, int]) -> None:
        """What a SuperNode does with a message whose content it could not get."""
        name, task = announced
        self.state.delete_messages(message_ids=[name])
        self.store.delete(name)
        self.state.finish_task(task, sub_status=SubStatus.FAILED, details="content lost")

    def collect(self, seconds=10.0) -> Message | None:
        """The reply that the SuperLink would get."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for message in self.state.get_messages_legacy(is_reply=True):
                tree = self.store.get_object_tree(message.metadata.message_id)
                while any(not self.store.get(part.object_id) for part in iterate_object_tree(tree)):
                    time.sleep(0.01)
                parts = {part.object_id: self.store.get(part.object_id) for part in iterate_object_tree(tree)}
                return inflate_object_from_contents(tree.object_id, parts)
            time.sleep(0.02)
        return None


@pytest.fixture
def node():
    node = SuperNode()
    yield node
    node.server.should_exit = True
    node.thread.join(10.0)


def message_of(content: RecordDict, run: int) -> Message:
    return make_message(metadata=Metadata(run, "", 1, NODE, "", "", time.time(), 60.0, "train"), content=content)


def packet(content: bytes) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord({PACKET: content})})


def test_answers_come_back_one_after_the_other(node):
    told = []
    runner = TaskRunner(node.address, SECRET, lambda data: data[::-1], told.append)
    for content in (b"one", b"two" * 100_000):
        sent = node.deliver(packet(content))
        reply = node.collect()
        assert reply.content[RECORD][PACKET] == content[::-1]
        assert reply.metadata.reply_to_message_id == sent.object_id
        assert (reply.metadata.src_node_id, reply.metadata.dst_node_id, reply.metadata.run_id) == (NODE, 1, RUN)
    runner.stop()
    assert told == []
    node.deliver(packet(b"three"))
    assert node.collect(0.6) is None  # it takes no more


def test_a_message_that_is_not_ours_gets_an_error_and_the_next_an_answer(node):
    runner = TaskRunner(node.address, SECRET, lambda data: data, print)
    node.deliver(RecordDict({"run": ConfigRecord({"code": "import os"})}))
    reply = node.collect()
    assert reply.has_error()
    assert "KeyError" in reply.error.reason
    node.deliver(packet(b"ours"))
    assert node.collect().content[RECORD][PACKET] == b"ours"
    runner.stop()


def test_who_does_not_know_the_secret_gets_no_task(node):
    node.deliver(packet(b"for another"))
    thief = TaskRunner(node.address, b"guessed", lambda data: b"stolen", print)
    assert node.collect(1.0) is None
    thief.stop()
    runner = TaskRunner(node.address, SECRET, lambda data: data, print)
    assert node.collect().content[RECORD][PACKET] == b"for another"
    runner.stop()


def test_it_waits_for_a_node_that_is_not_there(node):
    runner = TaskRunner("127.0.0.1:9", SECRET, lambda data: data, pytest.fail)
    time.sleep(0.5)
    runner.stop()
    assert not runner._thread.is_alive()


@pytest.mark.parametrize("told_off", [True, False])
def test_a_task_whose_content_never_comes_is_left_for_the_next(node, monkeypatch, told_off):
    """As when a SuperLink dies between a message and its content: a SuperNode then goes on to the next, and may keep the task."""
    interrupts, told = [], []
    monkeypatch.setattr("flwr.supercore.heartbeat.HEARTBEAT_DEFAULT_INTERVAL", 5.05)  # a sign of life every 40 ms
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        runner = TaskRunner(node.address, SECRET, lambda data: data, told.append)
        announced = node.announce(packet(b"lost"))
        time.sleep(0.5)
        if told_off:
            node.give_up(announced)
        node.deliver(packet(b"next"), OTHER_RUN)
        assert node.collect(5.0).content[RECORD][PACKET] == b"next"
        runner.stop()
    finally:
        signal.signal(signal.SIGINT, before)
    assert interrupts == []
    assert all("a task failed" in line for line in told)

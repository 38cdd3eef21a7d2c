"""The link over a grid that is made of paper: who is let in, who is waited for, and what counts as an answer."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from flwr.supercore.task_identity import TaskIdentity

from fedpg.flower import link as links
from fedpg.flower.link import FlowerLink
from fedpg.flower.protocol import PACKET, RECORD, Answer, Task, pack, unpack
from fedpg.flower.server import RunTerms

TERMS = RunTerms("run-0", "", agents=3)


class Paper:
    """A grid whose nodes answer as `nodes`, node -> (packet -> packet, an Exception, or None for silence), says."""

    def __init__(self, nodes):
        self.nodes, self.sent, self.asked, self.activated = nodes, {}, [], {}

    def get_nodes(self):
        known = ({"node_id": node, "public_key": b"key of %d" % node} for node in self.nodes)
        return [SimpleNamespace(**one, last_activated_at=self.activated.get(one["node_id"], "then")) for one in known]

    def push_messages(self, messages):
        names = []
        for message in messages:
            self.asked.append(message.metadata.dst_node_id)
            names.append(f"message-{len(self.asked)}")
            self.sent[names[-1]] = message
        return names

    def pull_messages(self, names):
        return [reply for name in names if name in self.sent and (reply := self._reply(name)) is not None]

    def _reply(self, name):
        message = self.sent[name]
        answer = self.nodes.get(message.metadata.dst_node_id)
        found = answer(message.content[RECORD][PACKET]) if answer else None
        if found is None:
            return None
        del self.sent[name]
        failed = isinstance(found, Exception)
        content = found if isinstance(found, dict) else {RECORD: {PACKET: found}}
        error = SimpleNamespace(code=getattr(found, "code", 2), reason=str(found))
        return SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=name), has_error=lambda: failed, content=content, error=error)


def node(agent, run="run-0", error="", work=lambda packet: b"work"):
    """A node that says who it is, and otherwise does `work`."""

    def answer(packet):
        task = unpack(packet, Task)[0] if packet.startswith(b"FEDPG") else None
        if task and task.kind == "hello":
            return pack(Answer(task.serial, run, agent, error=error), {})
        return work(packet)

    return answer


@pytest.fixture(autouse=True)
def _paper(monkeypatch):
    monkeypatch.setattr(links, "NODE_POLL", 0.0)
    monkeypatch.setattr(links, "POLL", 0.001)
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def linked(nodes, owner=lambda info: None):
    grid, lines = Paper(nodes), []
    return grid, FlowerLink(grid, TERMS, owner, lines.append), lines


def test_agents_are_those_whose_nodes_say_so_and_answers_go_by_agent():
    _, link, lines = linked({11: node(2), 12: node(0, work=lambda packet: packet + b"!")})
    assert link.present() == {0, 2}
    assert dict(link.ask({0: b"a", 2: b"b"}, 1.0)) == {0: b"a!", 2: b"work"}
    assert not lines


def test_an_agent_that_was_restarted_while_nobody_asked_it_leaves_a_line():
    grid, link, lines = linked({7: node(0), 8: node(1)})
    assert link.present() == {0, 1}
    grid.activated[8] = "later"
    for _ in range(2):
        assert link.present() == {0, 1}
    assert lines == ["agent 1 connected anew"]
    grid.nodes[7] = node(0, work=lambda packet: grid.activated.update({7: "later"}))
    assert dict(link.ask({0: b"a"}, 1.0)) == {0: "it connected anew"}
    assert len(lines) == 1, "that line has the number of the round"


@pytest.mark.parametrize(
    ("intruder", "why"),
    [
        (node(3), "agent 3, of 3"),
        (node(-1), "agent -1, of 3"),
        (node(0, run="run-1"), "another run"),
        (node(0, error="other spaces"), "other spaces"),
        (lambda packet: b"rubbish", "not a packet of fedpg"),
        (lambda packet: RuntimeError("boom"), "Flower reports error 2: boom"),
        (lambda packet: {}, "without a packet"),
        (lambda packet: {RECORD: {PACKET: "text"}}, "without a packet"),
    ],
)
def test_a_node_that_is_not_who_it_says_is_refused(intruder, why):
    _, link, lines = linked({7: intruder, 8: node(1)})
    assert link.present() == {1}
    assert len(lines) == 1
    assert why in lines[0]
    assert link.present() == {1}
    assert len(lines) == 1, "it is not asked again at once"


def test_the_key_of_a_node_says_which_agent_it_may_be():
    owners = {b"key of 7": 0, b"key of 8": 1}
    _, link, lines = linked({7: node(1), 8: node(1), 9: node(2)}, owner=lambda info: owners.get(info.public_key, -1))
    assert link.present() == {1}
    assert any("has the key of agent 0" in line for line in lines)
    assert any("node 9 is refused" in line for line in lines)


def test_a_second_node_that_claims_a_seat_waits_until_it_is_free():
    grid, link, lines = linked({7: node(1)})
    assert link.present() == {1}
    grid.nodes[8] = node(1)
    assert link.present() == {1}
    assert "there is an agent 1 already" in lines[0]
    del grid.nodes[7]
    link._hellos.clear()  # as if a minute had passed
    assert link.present() == {1}
    assert dict(link.ask({1: b"x"}, 1.0)) == {1: b"work"}
    assert grid.asked[-1] == 8


def test_a_deadline_is_waited_for_once_and_not_again_until_the_agent_answers():
    silent = {"now": True}
    grid, link, _ = linked({7: node(0), 8: node(1)})
    assert link.present() == {0, 1}
    grid.nodes[8] = lambda packet: None if silent["now"] else node(1)(packet)
    assert dict(link.ask({0: b"x", 1: b"x"}, 0.05)) == {0: b"work", 1: "no answer within 0.05 seconds"}
    assert link.present() == {0}
    assert dict(link.ask({1: b"x"}, 0.05)) == {1: "its node has gone"}
    silent["now"] = False
    assert link.present() == {0, 1}
    assert dict(link.ask({1: b"x"}, 1.0)) == {1: b"work"}


def test_an_agent_that_is_late_hears_that_the_run_is_over_too():
    """It may still be at its last evaluation, and would wait for another task for ever."""
    busy, heard = [False], []

    def answer(packet):
        task = unpack(packet, Task)[0]
        heard.append(task.kind)
        return None if busy[0] and task.kind != "over" else pack(Answer(task.serial, "run-0", 0), {})

    _, link, lines = linked({7: answer})
    assert link.present() == {0}
    busy[0] = True
    assert dict(link.ask({0: pack(Task("evaluate", "run-0", ""), {})}, 0.05)) == {0: "no answer within 0.05 seconds"}
    assert link.known() == {}
    began = time.monotonic()
    link.tell("over", "", 5.0)
    assert heard[-1] == "over"
    assert time.monotonic() - began < 4.0
    assert lines == []


def test_an_error_of_flowers_is_an_answer_that_says_so_and_the_agent_is_greeted_again():
    broken = {"now": True}
    _, link, _ = linked({7: node(0, work=lambda packet: RuntimeError("boom\n\x1b[2J") if broken["now"] else b"fine")})
    assert link.present() == {0}
    found = dict(link.ask({0: b"x"}, 1.0))[0]
    assert "boom" in found
    assert found.isprintable()
    broken["now"] = False
    assert link.present() == {0}
    assert dict(link.ask({0: b"x"}, 1.0)) == {0: b"fine"}


def test_an_agent_that_leaves_for_good_hears_that_the_server_knows():
    """It is never present, though its environment has no shapes; another agent's key cannot say it."""
    goodbyes: list[Task] = []

    def goodbye(agent):
        def answer(packet):
            task = unpack(packet, Task)[0]
            goodbyes.append(task)
            return pack(Answer(task.serial, task.run, agent, leaving=True), {})

        return answer

    owners = {b"key of 7": 1, b"key of 8": 0, b"key of 9": 2}
    grid, link, lines = linked({7: goodbye(1), 8: node(0), 9: goodbye(0)}, owner=lambda info: owners[info.public_key])
    assert link.present() == {0}
    assert (link.leaving(), len(lines)) == ({1}, 1)
    assert "has the key of agent 2" in lines[0]
    link.farewell(1)
    assert (link.present(), link.leaving()) == ({0}, set())
    assert grid.asked.count(7) == 2, "a hello, and the farewell: no second hello"
    assert dict(link.ask({1: b"x"}, 1.0)) == {1: "its node has gone"}


def test_a_node_that_leaves_takes_its_agent_along():
    grid, link, _ = linked({7: node(0), 8: node(1)})
    assert link.present() == {0, 1}
    del grid.nodes[7]
    assert link.present() == {1}


@pytest.mark.parametrize("gone", [True, False], ids=["goes away", "connects anew"])
def test_nobody_waits_for_an_agent_that_was_killed_with_a_task_in_its_hands(gone):
    grid, link, _ = linked({7: node(0), 8: node(1)})
    assert link.present() == {0, 1}
    before, found, began = grid.nodes[8], {}, time.monotonic()
    grid.nodes[8] = lambda packet: None
    for agent, answer in link.ask({0: b"x", 1: b"x"}, 60.0):
        found[agent] = answer
        if gone:
            grid.nodes.pop(8, None)
        else:
            grid.activated[8], grid.nodes[8] = "now", lambda packet: None if packet == b"x" else before(packet)
    assert found == {0: b"work", 1: "its node has gone" if gone else "it connected anew"}
    assert time.monotonic() - began < 5.0
    assert link.present() == ({0} if gone else {0, 1}), "it says again who it is"
    grid.nodes[8] = before  # it was not killed, but without a network for a while
    assert link.late() == ({1: b"work"} if gone else {})


def test_a_node_that_was_away_when_it_was_greeted_is_no_refusal():
    away = RuntimeError("Node Unavailable")
    away.code = links.UNAVAILABLE
    grid, link, lines = linked({7: lambda packet: away, 8: node(1)})
    assert link.present() == {1}
    grid.nodes[7] = node(0)
    assert link.present() == {0, 1}
    assert lines == []

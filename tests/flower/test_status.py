"""The status of a federation: what the server reported, in numbers that are counted here a second time; a run does not depend on it."""

import dataclasses
import errno
import itertools
import json
import sys
import threading
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from fedpg import named_arrays
from fedpg.flower.protocol import Answer, Task, pack, unpack
from fedpg.flower.server import RemoteAgents, Rules, RunTerms
from fedpg.flower.status import MAX_EVENTS, MAX_POINTS, Status, StatusWriter, read_status
from fedpg.runs.config import Config

CONFIG = Config(env="cartpole", algorithm="pavg", agents=4, rounds=10)
SHARED = {"params": np.ones(3, np.float32)}


def row(round: int, value: float | None = 1.0) -> dict:
    return {"round": round, "return": value, "return_worst": value, "env_steps": 8.0 * round, "floats_up": 6.0, "floats_down": 3.0}


def event(agent: int | None, what: str, round: int = 0) -> dict:
    return {"round": round, "during": "training", "seed": 0, "agent": agent, "what": what}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "federation" / "status.json"


class Wire:
    """Agent 0 answers well, agent 1 with a damaged packet, agent 2 not at all; agent 3 is not there."""

    def __init__(self, path: Path) -> None:
        self.path, self.sent, self.received, self.states = path, 0, 0, []
        self.waits = (0.0, 0.0)  # seconds until agents 0 and 1 answered in the last exchange

    def present(self) -> set[int]:
        return {0, 1, 2}

    def late(self):
        return {}

    def leaving(self):
        return set()

    def ask(self, sent: dict[int, bytes], seconds: float, enough=None):
        began = time.monotonic()
        self.sent += sum(map(len, sent.values()))
        self.states.append(read_status(self.path).state)
        task, _ = unpack(sent[0], Task)
        good = pack(Answer(task.serial, task.run, 0), named_arrays.flatten(SHARED))
        first = time.monotonic() - began
        yield 0, good
        self.states.append(read_status(self.path).state)
        self.received += len(good) + len(good) - 5
        self.waits = first, time.monotonic() - began
        yield 1, good[:-5]
        yield 2, "no answer within 1 seconds"


def test_what_the_server_reports_is_counted(path):
    writer, link = StatusWriter(path, CONFIG), Wire(path)
    agents = RemoteAgents(RunTerms("run", "", 4), Rules(), link, writer)
    agents.seats.arrive({0, 1, 2, 3})  # before the server was restarted
    for round in range(3):
        began = time.monotonic()
        agents.wait_for(lambda: 1, round, "training")
        heard = agents.ask(Task("update", "", "", round=round), SHARED, SHARED, list(range(4)), np.zeros(4), np.zeros(4))
        assert [one.tree is not None for one in heard] == [True, False, False, False]
        for told in agents.events.take():
            writer.happened(told)
    status = read_status(path)
    good, damaged, silent, away = status.agents
    assert (good.accepted, good.refused, good.missed, good.problem, good.state) == (3, 0, 0, "", "present")
    assert (damaged.accepted, damaged.refused, damaged.missed, damaged.state) == (0, 3, 0, "refused")
    assert "damaged" in damaged.problem
    assert (silent.accepted, silent.refused, silent.missed, silent.problem) == (0, 0, 3, "no answer within 1 seconds")
    assert (silent.state, away.state) == ("no answer", "not here yet")
    assert (away.missed, away.present, away.seen, away.problem) == (3, False, None, "absent")
    assert (status.bytes_sent, status.bytes_received) == (link.sent, link.received)
    assert link.states[-2:] == ["round 3 of 10: 0 of 3 have answered", "round 3 of 10: 1 of 3 have answered"]
    assert status.state == "round 3 of 10: 2 of 3 have answered"
    assert sorted((e.agent, e.count, e.place) for e in status.events) == [(1, 3, "round 3"), (2, 3, "round 3"), (3, 3, "round 3")]
    took = time.monotonic() - began
    assert link.waits[0] <= good.seconds <= took
    assert link.waits[1] <= damaged.seconds <= took
    assert abs(good.seen - time.time()) < 60


def test_states_follow_the_run(path):
    writer = StatusWriter(path, CONFIG)
    seen = [read_status(path)]

    def told() -> Status:
        seen.append(read_status(path))
        return seen[-1]

    writer.waiting(0, {1}, "waiting for agents 0, 2, 3 since 14:03:10")
    assert (told().state, seen[-1].agents[1].state) == ("waiting for agents 0, 2, 3 since 14:03:10", "present")
    writer.asked(0, "warm-up", [0, 1], 10)
    assert told().state == "warm-up: 0 of 2 have answered"
    assert [agent.state for agent in seen[-1].agents] == ["at work", "at work", "not here yet", "not here yet"]
    writer.asked(0, "evaluation", [0, 1], 10)
    writer.answered(0, 0.5, 7, "")
    assert (told().phase, seen[-1].state) == ("evaluating", "evaluating: 1 of 2 have answered")
    with writer.running(CONFIG, 0):
        writer.slow("waiting for agent 1 since 14:03:10")
        assert told().state == "evaluating: 1 of 2 have answered; waiting for agent 1 since 14:03:10"
        writer.advanced(4)
        assert told().last_round.startswith("round 4 of 10: 1 of 2 agents in ")
        writer.stopped()
        assert (told().phase, seen[-1].state) == ("stopped", "stopped after 4 of 10 rounds")
        assert [agent.state for agent in seen[-1].agents][:2] == ["present", "present"]
        writer.advanced(10)
    writer.finished()
    assert told().phase == "finished"
    writer.failed("no room\non the disk \x1b[31m")
    assert (told().phase, seen[-1].state) == ("failed", "failed: no room on the disk  [31m")
    assert seen[0].state == "starting"
    assert all(a.changed <= b.changed for a, b in itertools.pairwise(seen))


def test_with_partial_participation_not_asked_is_not_absent(path):
    writer = StatusWriter(path, dataclasses.replace(CONFIG, participation=0.5))
    writer.waiting(0, {0, 1, 2}, 4)
    writer.asked(0, "training", [1, 3], 10)
    assert [agent.present for agent in read_status(path).agents] == [True] * 4
    writer.asked(0, "evaluation", [1, 3], 10)
    assert [agent.present for agent in read_status(path).agents] == [False, True, False, True]


def test_one_that_came_after_all_is_not_absent(path):
    writer = StatusWriter(path, CONFIG)
    writer.asked(0, "training", [0, 1, 2, 3], 10)
    writer.happened(event(3, "absent"))
    assert (read_status(path).agents[3].present, read_status(path).agents[3].missed) == (True, 1)


def test_long_runs_keep_their_first_and_last_point(path):
    writer = StatusWriter(path, CONFIG)
    for round in range(1000):
        writer.evaluated(row(round, float(round)))
    curve = read_status(path).curve
    assert MAX_POINTS / 2 <= len(curve) <= MAX_POINTS
    assert (curve[0].round, curve[-1].round) == (0, 999)
    assert [p.round for p in curve] == sorted({p.round for p in curve})
    assert all(p.total_return == p.round for p in curve)
    assert (read_status(path).env_steps, read_status(path).floats_up) == (7992.0, 6.0)


def test_a_resumed_run_continues(path):
    first = StatusWriter(path, CONFIG)
    first.asked(0, "training", [0, 1], 100)
    first.answered(0, 1.0, 50, "")
    first.happened(event(1, "odd"))
    writer = StatusWriter(path, CONFIG, rows=[row(0), row(2), row(4, None)])
    status = read_status(path)
    assert (status.state, status.bytes_sent, status.agents[0].accepted, status.events[0].what) == ("starting", 100, 1, "odd")
    assert not any(agent.present for agent in status.agents)
    with writer.running(CONFIG, 3):
        assert [p.round for p in read_status(path).curve] == [0, 2]
    writer.evaluated(row(4, 7.0))
    assert [p.total_return for p in read_status(path).curve] == [1.0, 1.0, 7.0]
    StatusWriter(path, dataclasses.replace(CONFIG, agents=2))
    assert (len(read_status(path).agents), read_status(path).bytes_sent) == (2, 0)


def test_events_are_few_and_counted(path):
    writer = StatusWriter(path, CONFIG)
    for i in range(100):
        writer.happened(event(0, f"a norm of {1.5 * i:.3g}e+30", i))
        writer.happened(event(1, f"another {chr(0x4E00 + i)}\n", i))
    events = read_status(path).events
    assert len(events) == MAX_EVENTS
    assert (events[-2].what, events[-2].count, events[-2].place) == ("a norm of 148e+30", 100, "round 100")
    assert [(e.what, e.count) for e in events[-4:] if e.agent == 1] == [(f"another {chr(0x4E00 + i)} ", 1) for i in (97, 98, 99)]
    assert [e.number for e in events] == sorted({e.number for e in events})


def test_a_disk_that_cannot_be_written_stops_nothing(path, tmp_path, monkeypatch):
    writer = StatusWriter(path, CONFIG)
    writer.advanced(1)

    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        writer.advanced(2)
        writer.failed("disk full")
    assert read_status(path).round == 1
    assert list(path.parent.iterdir()) == [path]
    writer.advanced(3)
    assert read_status(path).round == 3
    (tmp_path / "file").write_text("")
    StatusWriter(tmp_path / "file" / "status.json", CONFIG).finished()


def test_whatever_is_in_the_file_reading_does_not_fail(path):
    assert read_status(path) is None
    writer = StatusWriter(path, CONFIG)
    writer.evaluated(row(0) | {"return_worst": None})
    writer.happened(event(1, "odd"))
    whole = path.read_bytes()
    assert msgspec.json.encode(read_status(path)) == whole
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert read_status(path) is None
    good = json.loads(whole)
    wrong = [
        {"round": "1"},
        {"round": True},
        {"changed": "now"},
        {"agents": {}},
        {"agents": [1]},
        {"curve": [[]]},
        {"more": 1},
        {"state": None},
    ]
    wrong += [{"phase": "<b>"}, {"agents": [{**good["agents"][0], "seen": float("nan")}]}]
    wrong += [{"agents": [{**good["agents"][0], "state": "<b>"}]}, {"events": [{**good["events"][0], "agent": "<b>"}]}]
    for change in wrong:
        path.write_text(json.dumps(good | change))
        assert read_status(path) is None, change
    for text in (b"\xff" * 9, b"[" * 100_000):
        path.write_bytes(text)
        assert read_status(path) is None


def test_readers_see_whole_states_while_many_threads_report(path):
    writer, seen, each = StatusWriter(path, CONFIG), [], 150
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads interrupt each other as often as they can

    def report() -> None:
        for _ in range(each):
            writer.answered(1, 0.1, 5, "")

    threads = [threading.Thread(target=report) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            seen.append(read_status(path))
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert None not in seen
    assert len({status.bytes_received for status in seen}) > 5
    assert all(5 * status.agents[1].accepted == status.bytes_received for status in seen)
    assert read_status(path).agents[1].accepted == 4 * each


def test_a_large_federation_can_report_every_answer(path):
    """A thousand agents: the file is written whole at every answer, which must cost a round next to nothing."""
    writer = StatusWriter(path, dataclasses.replace(CONFIG, agents=1000))
    writer.asked(0, "training", list(range(1000)), 10)
    began = time.monotonic()
    for agent in range(200):
        writer.answered(agent, 0.1, 5, "")
    assert (time.monotonic() - began) / 200 < 0.02

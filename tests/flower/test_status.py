"""The status of a federation: what the server was told, in numbers that are counted here a second time."""

from __future__ import annotations

import dataclasses
import itertools
import time
from pathlib import Path

import numpy as np
import pytest
from fedpg.flower.asking import Asking, Terms
from fedpg.flower.snapshot import Status

from fedpg import named_arrays as wire
from fedpg.flower import packets, tasks
from fedpg.flower.status import MOST_EVENTS, MOST_POINTS, Board, read
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

    def __init__(self, board: Board, path: Path) -> None:
        self.board, self.path, self.sent, self.received, self.states = board, path, 0, 0, []
        self.arrival = self.whole = 0.0  # seconds of the last asking until agent 0 had answered, and until it was over

    def present(self) -> set[int]:
        return {0, 1, 2}

    def ask(self, sent: dict[int, bytes], seconds: float) -> dict[int, bytes | str]:
        began = time.monotonic()
        self.sent += sum(map(len, sent.values()))
        self.states.append(read(self.path).state)
        task = tasks.read(tasks.Task, packets.unpack(sent[0]).header)
        good = packets.pack(tasks.write(tasks.Answer(task.serial, task.run, 0, schema=task.schema)), wire.flatten(SHARED))
        self.arrival = time.monotonic() - began
        self.board.arrived(0)
        self.states.append(read(self.path).state)
        self.received += len(good) + len(good) - 5
        self.whole = time.monotonic() - began
        return {0: good, 1: good[:-5], 2: "no answer within 1 seconds"}


def test_what_asking_tells_is_counted(path):
    board = Board(path, CONFIG, every=0)
    link = Wire(board, path)
    asking = Asking(Terms("run", ""), board, link)
    for round in range(3):
        began = time.monotonic()
        asking.wait_for(1, round, "training")
        heard = asking.ask(tasks.Task(tasks.UPDATE, "", "", round=round), SHARED, SHARED, np.arange(4), np.zeros(4), np.zeros(4))
        assert [one.tree is not None for one in heard] == [True, False, False, False]
        for told in asking.take():
            board.happened(told)
    status = read(path)
    good, damaged, silent, away = status.agents
    assert (good.accepted, good.refused, good.missed, good.problem, good.present) == (3, 0, 0, "", True)
    assert (damaged.accepted, damaged.refused, damaged.missed) == (0, 3, 0)
    assert "damaged" in damaged.problem
    assert (silent.accepted, silent.refused, silent.missed, silent.problem) == (0, 0, 3, "no answer within 1 seconds")
    assert (away.missed, away.present, away.seen, away.problem) == (3, False, None, "absent")
    assert (status.bytes_sent, status.bytes_received) == (link.sent, link.received)
    assert link.states[-2:] == ["round 3 of 10: 0 of 3 have answered", "round 3 of 10: 1 of 3 have answered"]
    assert status.state == "round 3 of 10: 2 of 3 have answered"
    assert sorted((e.agent, e.count) for e in status.events) == [(1, 3), (2, 3), (3, 3)]
    took = time.monotonic() - began
    assert link.arrival <= good.seconds <= took
    assert link.whole <= damaged.seconds <= took
    assert abs(good.seen - time.time()) < 60


def test_states_follow_the_run(path):
    board = Board(path, CONFIG, every=0)
    seen = [read(path)]

    def told() -> Status:
        seen.append(read(path))
        return seen[-1]

    board.waiting(0, "warm-up", {1}, 3)
    assert (told().state, seen[-1].agents[1].present) == ("waiting for agents: 1 of at least 3 is there", True)
    board.asked(0, "warm-up", [0, 1], 10)
    assert told().state == "warm-up: 0 of 2 have answered"
    assert [agent.at_work for agent in seen[-1].agents] == [True, True, False, False]
    board.asked(0, "evaluation", [0, 1], 10)
    board.heard(0, 0.5, 7, "")
    assert (told().phase, seen[-1].state) == ("evaluating", "evaluating: 1 of 2 have answered")
    with board.running(CONFIG, 0):
        board.advanced(4)
        board.finished()
        assert (told().phase, seen[-1].state, seen[-1].finished) == ("stopped", "stopped after 4 of 10 rounds", False)
        board.advanced(10)
    board.finished()
    assert (told().finished, seen[-1].failure) == (True, "")
    board.failed("no room\non the disk \x1b[31m")
    assert (told().finished, seen[-1].failure) == (False, "no room on the disk  [31m")
    assert seen[0].state == "starting"
    assert all(a.changed <= b.changed for a, b in itertools.pairwise(seen))


def test_with_partial_participation_not_asked_is_not_absent(path):
    board = Board(path, dataclasses.replace(CONFIG, participation=0.5), every=0)
    board.waiting(0, "training", {0, 1, 2}, 4)
    board.asked(0, "training", [1, 3], 10)
    assert [agent.present for agent in read(path).agents] == [True] * 4
    board.asked(0, "evaluation", [1, 3], 10)
    assert [agent.present for agent in read(path).agents] == [False, True, False, True]


def test_one_that_came_after_all_is_not_absent(path):
    board = Board(path, CONFIG, every=0)
    board.asked(0, "training", [0, 1, 2, 3], 10)
    board.happened(event(3, "absent"))
    assert (read(path).agents[3].present, read(path).agents[3].missed) == (True, 1)


def test_long_runs_keep_their_first_and_last_point(path):
    board = Board(path, CONFIG, every=60)
    for round in range(1000):
        board.evaluated(row(round, float(round)))
    board.finished()
    curve = read(path).curve
    assert MOST_POINTS / 2 <= len(curve) <= MOST_POINTS
    assert (curve[0].round, curve[-1].round) == (0, 999)
    assert [p.round for p in curve] == sorted({p.round for p in curve})
    assert all(p.total_return == p.round for p in curve)
    assert (read(path).metrics.env_steps, read(path).metrics.floats_up) == (7992.0, 6.0)


def test_a_resumed_run_goes_on(path):
    first = Board(path, CONFIG, every=0)
    first.asked(0, "training", [0, 1], 100)
    first.heard(0, 1.0, 50, "")
    first.happened(event(1, "odd"))
    board = Board(path, CONFIG, rows=[row(0), row(2), row(4, None)], every=0)
    status = read(path)
    assert (status.state, status.bytes_sent, status.agents[0].accepted, status.events[0].what) == ("starting", 100, 1, "odd")
    assert not any(agent.present or agent.at_work for agent in status.agents)
    with board.running(CONFIG, 3):
        assert [p.round for p in read(path).curve] == [0, 2]
    board.evaluated(row(4, 7.0))
    assert [p.total_return for p in read(path).curve] == [1.0, 1.0, 7.0]
    Board(path, dataclasses.replace(CONFIG, agents=2), every=0)
    assert (len(read(path).agents), read(path).bytes_sent) == (2, 0)


def test_events_are_few_and_counted(path):
    board = Board(path, CONFIG, every=60)
    for i in range(100):
        board.happened(event(0, f"a norm of {1.5 * i:.3g}e+30", i))
        board.happened(event(1, f"another {chr(0x4E00 + i)}\n", i))
    board.finished()
    events = read(path).events
    assert len(events) == MOST_EVENTS
    assert (events[-2].what, events[-2].count, events[-2].round) == ("a norm of 148e+30", 100, 99)
    assert [(e.what, e.count) for e in events[-4:] if e.agent == 1] == [(f"another {chr(0x4E00 + i)} ", 1) for i in (97, 98, 99)]
    assert [e.number for e in events] == sorted({e.number for e in events})

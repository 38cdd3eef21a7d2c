"""Agents that are slow, on a clock that only agents move: what they cost, and what becomes of answers that come late."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from fedpg.errors import UserError
from fedpg.flower import pace, server, status
from fedpg.flower.pace import Pace
from fedpg.flower.protocol import Task, unpack
from fedpg.flower.server import Rules
from fedpg.flower.server_app import check, train_remotely
from fedpg.runs.config import Config
from helpers.agents import Direct, agents_of

SECONDS = 4.0
"""What a task takes."""
SLOW = {"env": "random-mdp", "agents": 8, "rounds": 24, "local_steps": 4, "batch": 4, "horizon": 10, "eval_every": 2, "local_lr": 0.5}
TODAY = Rules(deadline=120.0, max_staleness=0)
"""Before deadlines adapted: everyone is waited for."""


class Clock:
    """A clock in place of `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def time_ns(self) -> int:
        return int(self.now * 1e9)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Timed(Direct):
    """A link to agents that take `SECONDS` times their factor for every update, one task after the other."""

    def __init__(self, agents, clock: Clock, factors: dict[int, float]) -> None:
        super().__init__(agents)
        self.clock, self.factors, self.late_answers = clock, factors, {}  # agent -> when, answer

    def present(self) -> set[int]:
        return {agent for agent in self.agents if self.late_answers.get(agent, (0.0,))[0] <= self.clock.now}

    def late(self) -> dict[int, bytes]:
        come = {agent: answer for agent, (when, answer) in self.late_answers.items() if when <= self.clock.now}
        for agent in come:
            del self.late_answers[agent]
        return come

    def ask(self, packets: dict[int, bytes], seconds: float, enough: Callable = lambda waiting, elapsed: False) -> Iterator:
        began = self.clock.now
        due = []
        for agent, packet in packets.items():
            task, _ = unpack(packet, Task)
            takes = SECONDS * self.factors.get(agent, 1.0) if task.kind == "update" else 1.0
            due.append((began + takes, agent, self.agents[agent].answer(packet)))
        due.sort()
        while due:
            waiting, now = {agent for _, agent, _ in due}, self.clock.now - began
            if now >= seconds or enough(waiting, now):
                break
            if due[0][0] <= self.clock.now:
                _, agent, answer = due.pop(0)
                yield agent, answer
            else:
                self.clock.now = min(due[0][0], self.clock.now + 0.5)
        for when, agent, answer in due:
            self.late_answers[agent] = when, answer
            yield agent, f"no answer within {seconds:g} seconds"


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    for module in (server, status):
        monkeypatch.setattr(module, "time", made)
    return made


def run(config: Config, out, clock: Clock, rules: Rules, factors: dict[int, float]) -> tuple[list[tuple[float, float]], list[dict]]:
    """The curve, seconds and return, and the events."""
    curve, began = [], clock.now

    class Watch(status.StatusWriter):
        def evaluated(self, row):
            curve.append((clock.now - began, row["return"]))
            super().evaluated(row)

    writer = Watch(out / "status.json", config)
    train_remotely(config, out / "run", lambda terms, note: Timed(agents_of(config), clock, factors), rules=rules, status=writer)
    file = out / "run" / "events.jsonl"
    return curve, [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def when(curve: list[tuple[float, float]], goal: float) -> float:
    """Seconds until a return was reached."""
    return next(seconds for seconds, found in curve if found >= goal)


@pytest.mark.slow
def test_one_of_eight_agents_ten_times_slower_costs_at_most_a_third_of_what_it_did(tmp_path, clock):
    config = Config(algorithm="pavg", **SLOW)
    before, _ = run(config, tmp_path / "today", clock, TODAY, {3: 10.0})
    after, events = run(config, tmp_path / "new", clock, Rules(), {3: 10.0})
    goal = before[0][1] + 0.9 * (before[-1][1] - before[0][1])
    assert max(found for _, found in after) >= goal
    assert when(after, goal) < when(before, goal) / 3, (before, after)
    counted = [event for event in events if "came late, and counts in round" in event["what"]]
    assert {event["agent"] for event in counted} == {3}
    assert len(counted) >= 2, "the slow agent's environment counts too"
    assert any(event["what"].startswith("waiting for agent 3 since ") for event in events)


@pytest.mark.slow
def test_without_slow_agents_nothing_changes(tmp_path, clock):
    config = Config(algorithm="pavg", **SLOW | {"rounds": 4})
    before, _ = run(config, tmp_path / "today", clock, TODAY, {})
    after, events = run(config, tmp_path / "new", clock, Rules(), {})
    assert after == before
    assert not events


@pytest.mark.parametrize(("algorithm", "staleness"), [("fast-fedpg", 16), ("pavg", 0)])
def test_a_late_answer_is_not_used_where_it_must_not_be(tmp_path, clock, algorithm, staleness):
    config = Config(algorithm=algorithm, **SLOW | {"rounds": 6, "agents": 3})
    _, events = run(config, tmp_path, clock, Rules(max_staleness=staleness), {1: 10.0})
    assert not [event for event in events if "came late, and counts" in event["what"]]


def test_a_round_may_end_with_some_answers(tmp_path, clock):
    config = Config(algorithm="pavg", **SLOW | {"rounds": 6, "agents": 4})
    curve, events = run(config, tmp_path, clock, Rules(deadline=100.0, min_agents_per_round=3), {1: 3.0})
    assert curve[-1][0] < 6 * SECONDS * 2, "nobody waits for agent 1"
    assert [event for event in events if "came late, and counts in round" in event["what"]]


def test_an_agent_that_was_slow_once_is_waited_for_again(tmp_path, clock):
    """From the fourth round on it is a little slower than the others, as any agent may be."""
    config, factors = Config(algorithm="pavg", **SLOW | {"rounds": 16, "agents": 3, "eval_every": 16}), {1: 10.0}

    class Recovers(Timed):
        def ask(self, packets, seconds, enough=lambda waiting, elapsed: False):
            factors[1] = 10.0 if self.clock.now < 1000.0 + 12 * SECONDS else 1.2
            return super().ask(packets, seconds, enough)

    train_remotely(config, tmp_path / "run", lambda terms, note: Recovers(agents_of(config), clock, factors))
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert any(event["agent"] == 1 for event in events)
    assert max(event["round"] for event in events) < 10, "it takes part like the others"


def test_a_deadline_adapts_and_has_a_floor():
    found = Pace(0.0)
    assert found.deadline("update") == pace.FIRST
    for agent in range(8):
        found.took("update", agent, 5.0)
    assert found.deadline("update") == pace.FACTOR * 5.0
    assert found.deadline("evaluate") == pace.FIRST
    found.took("update", 2, float("inf"))
    assert found.only_slow({2})
    assert not found.only_slow({1, 2})
    found.took("update", 2, 4.0)
    assert not found.only_slow({2})
    for agent in range(8):
        found.took("update", agent, 0.1)
    assert found.deadline("update") == pace.LEAST, "only the last answer of each counts"
    assert Pace(30.0).deadline("update") == 30.0


MEANINGLESS = ({"deadline": -1.0}, {"max_staleness": -1}, {"min_agents_per_round": 9}, {"quorum": 3, "min_agents_per_round": 2})


@pytest.mark.parametrize("rules", MEANINGLESS)
def test_rules_that_make_no_sense_are_refused(rules):
    with pytest.raises(UserError):
        check(Config(algorithm="pavg", **SLOW), Rules(**rules))

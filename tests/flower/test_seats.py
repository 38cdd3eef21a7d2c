"""Agents that join a running federation, and agents that leave it for good: absent, on record, and waited for by nobody."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from fedpg.envs import cartpole
from fedpg.errors import UserError
from fedpg.flower import greeting, server
from fedpg.flower.agent import Agent, AgentSettings
from fedpg.flower.protocol import Answer, Task, pack, unpack
from fedpg.flower.seats import CAME_BACK, JOINED, LEFT, SEATS_FILE, Seats
from fedpg.flower.server import Rules
from fedpg.flower.server_app import train_remotely
from fedpg.flower.status import StatusWriter, read_status
from fedpg.runs.config import Config
from fedpg.runs.progress import Progress
from helpers.agents import Direct, agents_of
from helpers.hostile import edited
from helpers.real import PATIENCE, federation
from helpers.runs import final_arrays

CONFIG = Config(env="random-mdp", algorithm="calm", agents=4, rounds=6, local_steps=2, batch=2, horizon=6, eval_every=1)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(server, "PAUSE", 0.0)
    monkeypatch.setattr(server, "LOOK_SECONDS", 0.0)


def run(out: Path, link: Direct, config: Config = CONFIG, **more):
    return train_remotely(config, out, lambda terms, note: link, **more)


def events(out: Path) -> list[tuple]:
    file = out / "events.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [(event["round"], event["during"], event["agent"], event["what"]) for event in lines]


class Plan(Progress):
    """What happens to a link after so many rounds: (rounds, who is away from then on, who says goodbye)."""

    def __init__(self, link: Direct, *plan: tuple[int, set[int], set[int]]) -> None:
        self._link, self._plan = link, {rounds: (away, going) for rounds, away, going in plan}

    def advanced(self, round: int) -> None:
        self._link.away, self._link.going = self._plan.get(round, (self._link.away, self._link.going))


def test_an_agent_joins_later_another_leaves_and_comes_back_and_a_seat_stays_free(tmp_path):
    """The state is that of a federation in which all are there, and the answers of those rounds are lost."""
    link = Direct(agents_of(CONFIG))
    link.away = {2, 3}
    plan = Plan(link, (2, {3}, set()), (3, {3}, {0}), (5, {3}, set()))
    done = run(tmp_path / "run", link, rules=Rules(start_with=2), progress=plan)
    assert [row["round"] for row in done.rows] == list(range(7))
    assert events(tmp_path / "run") == [
        (2, "membership", 2, JOINED),  # seen by the evaluation after two rounds
        (3, "membership", 0, LEFT),
        (5, "membership", 0, CAME_BACK),
    ]
    assert json.loads((tmp_path / "run" / "federation" / SEATS_FILE).read_text()) == {"taken": [0, 1, 2], "left": []}
    away = {2: (0, 1), 3: range(6), 0: (3, 4)}
    first = next(task for agent, task, _, _ in link.seen if agent == 2 and task.kind == "update")
    assert (first.round, first.from_state) == (2, -1), "the newcomer starts from its first state, in the round it came"

    def lose(agent, task, packet, answer):
        return "no answer" if task.kind == "update" and task.round in away.get(agent, ()) else answer

    run(tmp_path / "lost", Direct(agents_of(CONFIG), lose))
    ours, theirs = final_arrays(tmp_path / "run"), final_arrays(tmp_path / "lost")
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("how", ["instead of an answer", "between two exchanges"])
def test_a_quorum_does_not_wait_for_an_agent_that_has_left(how, tmp_path):
    """Three of three are asked for. One leaves: the other two suffice at once, and no round is repeated."""

    def meddle(agent, task, packet, answer):
        goodbye = how == "instead of an answer" and (agent, task.kind, task.round) == (1, "update", 2)
        return edited(answer, lambda header: header.update(leaving=True)) if goodbye else answer

    config = dataclasses.replace(CONFIG, agents=3, rounds=4)
    link = Direct(agents_of(config), meddle)
    plan = Plan(link, *([(2, set(), {1})] if how == "between two exchanges" else []))
    assert run(tmp_path / "run", link, config, rules=Rules(quorum=3), progress=plan).round == 4
    assert events(tmp_path / "run") == [(2, "membership", 1, LEFT)]
    assert [agent for agent, task, _, _ in link.seen if (task.kind, task.round) == ("update", 3)] == [2, 0]


def test_a_killed_server_knows_who_has_left_and_whose_seat_is_free(tmp_path, monkeypatch):
    """With a quorum, and a restart that would wait for whoever was there."""

    class Killed(Exception):
        pass

    class Kill(Plan):
        def advanced(self, round):
            super().advanced(round)
            if round == 3:
                raise Killed

    link = Direct(agents_of(CONFIG))
    link.away = {3}
    with pytest.raises(Killed):
        run(tmp_path / "run", link, rules=Rules(start_with=3, quorum=3), progress=Kill(link, (2, {3}, {1})))
    before = events(tmp_path / "run")
    assert before == [(2, "membership", 1, LEFT)]
    monkeypatch.setattr(server, "RETURN_SECONDS", 1.0)
    assert run(tmp_path / "run", link, rules=Rules(start_with=3, quorum=3), resume=True).round == 6
    assert events(tmp_path / "run") == before, "neither waited for nor absent"
    (tmp_path / "run" / "federation" / SEATS_FILE).write_text("[")
    with pytest.raises(UserError, match=r"seats.json is damaged"):
        run(tmp_path / "run", link, resume=True)


@pytest.mark.parametrize("rule", [{"participation": 0.5}, {"participation": 0.5, "selection": "power-of-choice"}])
def test_a_share_of_the_agents_is_drawn_from_those_that_are_there(rule, tmp_path):
    config = dataclasses.replace(CONFIG, **rule)
    link = Direct(agents_of(config))
    link.away = {0}
    assert run(tmp_path / "run", link, config, rules=Rules(start_with=3), progress=Plan(link, (3, {0}, {1}))).round == 6
    assert events(tmp_path / "run") == [(3, "membership", 1, LEFT)]
    for round in range(6):
        asked = {agent for agent, task, _, _ in link.seen if (task.kind, task.round) == ("update", round)}
        assert len(asked) == 2
        assert not asked & ({0} if round < 3 else {0, 1})


def test_for_whom_a_server_waits_before_it_begins(tmp_path):
    """The agents that are needed by name if no other would do; free seats as a number. A seat that is not needed is not mentioned."""
    link = Direct(agents_of(CONFIG))
    link.away = {0, 1, 2, 3}
    lines = []

    class Watch(StatusWriter):
        def waiting(self, round, present, line):
            lines.append(line.partition(" since ")[0] + line.partition(":")[2][5:])
            link.away = set(sorted(link.away)[1:])

    writer = Watch(tmp_path / "status.json", CONFIG)
    run(tmp_path / "run", link, rules=Rules(start_with=3), status=writer)
    seats = ("seats 0, 1, 2, 3 are free", "seats 1, 2, 3 are free", "seats 2, 3 are free")
    assert lines == [f"waiting for {3 - i} more agent{'s' if i < 2 else ''}: {text}" for i, text in enumerate(seats)]
    everyone = Seats(3)
    everyone.arrive({0})
    assert everyone.waiting_line({0}, 3, "now") == "waiting for agents 1, 2 since now", "all are needed"
    everyone.leave(2)
    assert everyone.waiting_line({0}, 2, "now") == "waiting for agent 1 since now", "nobody waits for agent 2"


def test_the_status_says_who_has_left(tmp_path):
    link, path = Direct(agents_of(CONFIG)), tmp_path / "status.json"
    link.away = {3}
    writer = StatusWriter(path, CONFIG)

    class Both(Plan):
        def evaluated(self, row):
            writer.evaluated(row)

        def happened(self, event):
            writer.happened(event)

    run(tmp_path / "run", link, rules=Rules(start_with=2), status=writer, progress=Both(link, (2, {3}, {1})))
    status = read_status(path)
    assert [agent.state for agent in status.agents] == ["present", "left", "present", "not here yet"]
    assert [agent.missed for agent in status.agents] == [0, 0, 0, 0]
    assert [(event.place, event.agent, event.what) for event in status.events] == [("round 3", 1, LEFT)]
    again = StatusWriter(path, CONFIG)
    again.advanced(6)
    assert read_status(path).agents[1].state == "left", "a server that starts again says so too"
    assert "of 2 agents" in read_status(path).last_round


def test_an_agent_that_leaves_answers_nothing_else(tmp_path):
    told: list[str] = []
    agent = Agent(AgentSettings(1, "cartpole"), tmp_path, told.append, leaving=True)
    for kind in ("hello", "update", "evaluate"):
        said, arrays = unpack(agent.answer(pack(Task(kind, "run", "no configuration", serial=7), {})), Answer)
        assert (said.leaving, said.error, said.serial, arrays) == (True, "", 7, {})
    assert not agent.over.is_set()
    agent.answer(pack(Task("over", "run", ""), {}))
    assert agent.over.is_set()
    assert told == ["the server knows that this agent has left for good"]
    assert not list(tmp_path.iterdir())


def test_it_needs_no_environment_to_be_greeted():
    lines: list = []
    door = greeting.Door(2, "observations of 4 numbers", {}, lambda agent, line: lines.append(line))
    said = greeting.my_greeting(1, None, None)
    assert door.answer(msgspec.json.encode(said), "host") == (greeting.WELCOME, "")
    stays = msgspec.structs.replace(greeting.my_greeting(1, cartpole.ENVIRONMENT, None), spaces="")
    assert door.answer(msgspec.json.encode(stays), "host")[0] == greeting.REFUSED


@pytest.mark.federation
def test_three_processes_of_which_one_joins_later_and_one_leaves_for_good(tmp_path):
    """With a quorum of two. The server is killed after the goodbye, and remembers it."""
    flags = ("--agents", "4", "--start-with", "2", "--quorum", "2")
    with federation(tmp_path, flags, algorithm="calm", agents=2, rounds=(rounds := 60), eval_every=1) as real:
        real.serve()
        real.join(0)
        real.join(1)
        real.wait_until(lambda: real.round() >= 2)
        third = real.join(2, "--once")
        real.wait_until(lambda: any(row["return_per_agent"][2] is not None for row in real.lines("metrics.jsonl")))
        real.processes["join-0"].terminate()
        real.processes["join-0"].wait(PATIENCE)
        goodbye = real.join(0, "--leave")
        assert goodbye.wait(PATIENCE) == 0, real.log("join-0")
        left = real.round()
        assert real.agent(0)["state"] == "left"
        real.wait_until(lambda: real.round() > left)
        real.kill("serve")
        real.serve("--resume")
        rows = real.finish()
        assert third.wait(PATIENCE) == 0
    assert "to leave for good, add --leave" in real.log("join-0").lower()
    assert "the server knows that this agent has left for good" in real.log("join-0")
    assert [row["round"] for row in rows] == list(range(rounds + 1))
    news = [(event["agent"], event["what"]) for event in real.events() if event["during"] == "membership"]
    assert news == [(2, JOINED), (0, LEFT)]
    assert not real.events(3), "nobody has ever taken this seat"
    assert not real.missed(2)
    joined = min(row["round"] for row in rows if row["return_per_agent"][2] is not None)
    gone = max(row["round"] for row in rows if row["return_per_agent"][0] is not None)
    assert 2 <= joined <= gone < rounds
    assert [row["return_per_agent"][3] for row in rows] == [None] * (rounds + 1)
    assert real.log("serve").count("waiting for 1 more agent") <= 1, "before the start, and not for agent 0 or 3 afterwards"

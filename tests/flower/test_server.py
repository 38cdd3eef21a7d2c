"""The server's loop when agents are absent, silent or wrong, and when the server itself is stopped: nothing lost, everything on record."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

from fedpg.algorithms.selection import Selector
from fedpg.errors import UserError
from fedpg.flower import server
from fedpg.flower.protocol import Task, unpack
from fedpg.flower.server import Rules
from fedpg.flower.server_app import train_remotely
from fedpg.keys import Moment, Purpose
from fedpg.runs.config import Config
from fedpg.runs.progress import Progress
from helpers.agents import Direct, agents_of
from helpers.hostile import edited
from helpers.runs import final_arrays

SMALL = {"env": "random-mdp", "agents": 3, "rounds": 3, "local_steps": 2, "batch": 2, "horizon": 6, "eval_every": 2}
TRAIN, WARMUP, PRELUDE, EVALUATE = Purpose.TRAIN, Purpose.WARMUP, Purpose.PRELUDE, Purpose.EVALUATE
LOST = "no answer within 9 seconds"
WARM = Config(algorithm="fedsvrpg-m", **SMALL)
"""With a warm-up."""
TWICE = Config(algorithm="fast-fedpg", compression="top-k", **SMALL)
"""With two exchanges in every round, and agents that remember what they left out."""


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(server, "PAUSE", 0.0)
    monkeypatch.setattr(server, "RETURN_SECONDS", 0.0)


def run(config: Config, out: Path, link: Direct, **more):
    return train_remotely(config, out, lambda terms, note: link, **more)


def events(out: Path) -> list[tuple]:
    file = out / "events.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    assert all(event["what"].isprintable() for event in lines)
    return [(event["round"], event["during"], event["agent"], event["what"]) for event in lines]


def assert_same_run(one: Path, other: Path) -> None:
    """The same metrics, but for seconds and the count of events, and every bit of the same state."""
    rows = [[json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()] for out in (one, other)]
    assert [row | {"seconds": 0, "events": 0} for row in rows[0]] == [row | {"seconds": 0, "events": 0} for row in rows[1]]
    a, b = final_arrays(one), final_arrays(other)
    assert a.keys() == b.keys()
    assert all(np.array_equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Runs that nothing happened to: configuration -> folder."""
    found = {}
    for name, config in (("warm", WARM), ("twice", TWICE)):
        out, link = tmp_path_factory.mktemp("whole") / name, Direct(agents_of(config))
        done = run(config, out, link)
        assert (done.round, [row["round"] for row in done.rows], events(out)) == (3, [0, 2, 3], [])
        found[name] = out
    return found


class Fault:
    """Loses or spoils answers to chosen updates: (round, purpose, agent) -> how often."""

    def __init__(self, spoiled: dict[tuple[int, Purpose, int], int], spoil: Callable[[bytes], bytes | str] = lambda answer: LOST) -> None:
        self.spoiled, self.spoil = dict(spoiled), spoil

    def __call__(self, agent: int, task: Task, packet: bytes, answer: bytes) -> bytes | str:
        which = task.round, task.purpose, agent
        if task.kind != "update" or not self.spoiled.get(which, 0):
            return answer
        self.spoiled[which] -= 1
        return self.spoil(answer)


def asked(link: Direct, round: int) -> list[tuple[int, int]]:
    """Who was asked for updates in a round, and what for."""
    return [(agent, task.purpose) for agent, task, _, _ in link.seen if (task.kind, task.round) == ("update", round)]


@pytest.mark.parametrize(("name", "config", "purpose"), [("warm", WARM, TRAIN), ("twice", TWICE, PRELUDE), ("twice", TWICE, TRAIN)])
def test_a_round_without_quorum_is_repeated(name, config, purpose, whole, tmp_path):
    """As if nothing had happened, but for the record."""
    link = Direct(agents_of(config), Fault({(1, purpose, 2): 2}))
    assert run(config, tmp_path / "run", link, rules=Rules(quorum=3)).round == 3
    assert_same_run(tmp_path / "run", whole[name])
    again = [(1, "training", 2, LOST), (1, "training", None, "fewer than 3 usable messages: the exchange is repeated")]
    assert events(tmp_path / "run") == 2 * again
    assert asked(link, 1).count((2, purpose)) == 3
    if purpose == PRELUDE:
        assert asked(link, 1).count((1, TRAIN)) == 1, "what must be repeated anyway is not gone on with"


def test_a_quorum_is_of_agents_that_were_there_in_every_exchange(tmp_path):
    """Agent 0 misses the first, agent 2 the second: two messages each time, but one agent in both."""
    link = Direct(agents_of(TWICE), Fault({(1, PRELUDE, 0): 1, (1, TRAIN, 2): 1, (2, PRELUDE, 0): 1}))
    assert run(TWICE, tmp_path / "run", link, rules=Rules(quorum=2)).round == 3
    assert events(tmp_path / "run") == [
        (1, "training", 0, LOST),
        (1, "training", 2, LOST),
        (1, "training", None, "fewer than 2 usable messages: the exchange is repeated"),
        (2, "training", 0, LOST),
    ]
    assert sorted(asked(link, 2)) == [(0, PRELUDE), (1, TRAIN), (1, PRELUDE), (2, TRAIN), (2, PRELUDE)], (
        "agents that dropped out are not asked again"
    )


def test_an_agent_that_is_away_for_some_rounds_goes_on_from_its_own_state(tmp_path):
    """As if its answers had been lost."""

    class Away(Progress):
        def advanced(self, round):
            link.away = {1} if round == 1 else set()

    link = Direct(agents_of(TWICE))
    assert run(TWICE, tmp_path / "away", link, progress=Away()).round == 3
    assert events(tmp_path / "away") == [(1, "training", 1, "absent")]
    run(TWICE, tmp_path / "lost", Direct(agents_of(TWICE), Fault({(1, PRELUDE, 1): 1})))
    assert_same_run(tmp_path / "away", tmp_path / "lost")
    starts = [task.from_state for agent, task, _, _ in link.seen if agent == 1 and task.kind == "update"]
    assert starts == [-1, 0, 1, 4], "state 1 is that after round 0, and is what round 2 starts from"


def test_an_agent_whose_disk_was_lost_begins_anew_and_the_run_goes_on(tmp_path):
    class Lose(Progress):
        def advanced(self, round):
            if round == 1:
                shutil.rmtree(tmp_path / "disks" / "agent-1")

    done = run(TWICE, tmp_path / "run", Direct(agents_of(TWICE, tmp_path / "disks")), progress=Lose())
    assert done.round == 3
    assert events(tmp_path / "run") == [(1, "training", 1, "its state was gone: it started from the first one")]


class Killed(Exception):
    """The server is killed."""


class Deadly(Direct):
    """Kills the server in every exchange once: before agents hear of it, and in the next one after they have answered."""

    def __init__(self, agents) -> None:
        super().__init__(agents)
        self.killed: list[tuple] = []

    def ask(self, sent, seconds, enough=None):
        task, _ = unpack(next(iter(sent.values())), Task)
        which = task.kind, task.round, task.purpose
        if which in self.killed:
            return super().ask(sent, seconds)
        self.killed.append(which)
        if len(self.killed) % 2:
            list(super().ask(sent, seconds))
        raise (Killed, KeyboardInterrupt)[len(self.killed) % 2]


@pytest.mark.parametrize(("name", "config"), [("warm", WARM), ("twice", TWICE)])
def test_killed_in_every_exchange_and_resumed_it_ends_bit_for_bit_the_same(name, config, whole, tmp_path):
    link, resume = Deadly(agents_of(config)), False
    for _ in range(30):
        try:
            done = run(config, tmp_path / "run", link, resume=resume)
            break
        except (Killed, KeyboardInterrupt):
            resume = True
    assert done.round == 3
    assert link.killed == list(dict.fromkeys(link.killed))
    assert len(link.killed) == {"warm": 1 + 3 + 3, "twice": 2 * 3 + 3}[name], "warm-up, rounds, evaluations"
    assert_same_run(tmp_path / "run", whole[name])
    assert events(tmp_path / "run") == []


def test_if_every_agent_errs_three_times_it_stops_in_one_line_and_goes_on_when_mended(whole, tmp_path):
    def broken(answer):
        return edited(answer, lambda header: header.update(error="no power"))

    link = Direct(agents_of(WARM), Fault({(1, TRAIN, agent): 3 for agent in range(3)}, broken))
    with pytest.raises(UserError) as stopped:
        run(WARM, tmp_path / "run", link)
    line = str(stopped.value)
    assert line.startswith(
        "every agent failed in round 1 (the last was seed 0, agent 0: refused: no power): fix the environment, then --resume"
    )
    assert "\n" not in line
    told = [(1, "training", agent, "refused: no power") for agent in (2, 1, 0)]  # as they come
    repeated = [(1, "training", None, "fewer than 1 usable messages: the exchange is repeated")]
    assert events(tmp_path / "run") == told + repeated + told + repeated + told
    assert run(WARM, tmp_path / "run", link, resume=True).round == 3
    assert_same_run(tmp_path / "run", whole["warm"])
    assert events(tmp_path / "run") == []


@pytest.mark.parametrize(("kind", "purpose", "said"), [("update", WARMUP, "before round 0"), ("evaluate", EVALUATE, "in round 0")])
def test_the_same_before_the_first_round(kind, purpose, said, whole, tmp_path):
    def meddle(agent, task, packet, answer):
        wrong = (task.kind, task.purpose) == (kind, purpose)
        return edited(answer, lambda header: header.update(error="no power")) if wrong else answer

    link = Direct(agents_of(WARM), meddle)
    with pytest.raises(UserError, match=f"every agent failed {said} .*no power.*--resume"):
        run(WARM, tmp_path / "run", link)
    link.meddle = None
    run(WARM, tmp_path / "run", link, resume=True)
    assert_same_run(tmp_path / "run", whole["warm"])


def test_agents_that_tell_nothing_are_trained_all_the_same(whole, tmp_path):
    done = run(WARM, tmp_path / "run", Direct(agents_of(WARM, withhold=True)))
    assert (done.round, [row["return"] for row in done.rows], events(tmp_path / "run")) == (3, [None] * 3, [])
    ours, theirs = final_arrays(tmp_path / "run"), final_arrays(whole["warm"])
    for name in ours:
        if name.startswith("state.server"):
            assert np.array_equal(ours[name], theirs[name]), name


@pytest.mark.parametrize("how", ["away", "silent"])
def test_where_few_take_part_another_is_chosen_for_one_that_is_not_there(how, tmp_path):
    """One of three takes part in a round; without this a round whose agent is gone would be repeated for ever."""
    config = dataclasses.replace(WARM, participation=0.3, rounds=4, u0=0, eval_every=4)
    undisturbed = Direct(agents_of(config))
    run(config, tmp_path / "whole", undisturbed)
    chosen = [asked(undisturbed, round)[0][0] for round in range(4)]
    gone = chosen[1]
    link = Direct(agents_of(config))
    if how == "silent":
        link.meddle = lambda agent, task, packet, answer: LOST if agent == gone else answer
    else:
        link.away = {gone}
    assert run(config, tmp_path / "run", link, rules=Rules(start_with=2)).round == 4
    heard = {round: asked(link, round)[-1][0] for round in range(4)}
    for round in range(4):
        order = list(map(int, Selector(3, "random", 0, None).draw(Moment(jax.random.key(0), 0, round), 3)))
        assert chosen[round] == order[0]
        assert heard[round] == next(agent for agent in order if agent != gone)

"""Hostile answers: whatever an agent sends, it is refused and recorded, and the state is what it would be without that agent."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from fedpg import named_arrays, simulate
from fedpg.errors import LONGEST_TEXT
from fedpg.flower.server import Rules
from fedpg.flower.server_app import make_server
from fedpg.runs.config import Config
from fedpg.runs.setup import resolve
from helpers.agents import Direct, agents_of
from helpers.hostile import assert_one_line, edited, mutations, with_arrays

CONFIG = Config(env="random-mdp", algorithm="fedsvrpg-m", agents=3, rounds=9, local_steps=2, batch=2, horizon=6)
VILLAIN = 1
MESSAGE = "message['logits']"


class Federation:
    """An engine after its first round, which goes on from there as often as one likes."""

    def __init__(self, folder: Path) -> None:
        self.disks, self.copy = folder / "disks", folder / "copy"
        self.link = Direct(agents_of(CONFIG, self.disks))
        self.engine = make_server(resolve(CONFIG), "run-0", lambda terms, note: self.link, Rules(norm_bound=1e6))
        self.first, _ = self.engine.run(self.engine.init(jax.random.key(0)), 1)
        shutil.copytree(self.disks, self.copy)  # agents keep what the last checkpoint needs, not what these tests do
        self.old = {agent: answer for agent, task, _, answer in self.link.seen if task.kind == "update"}
        self.link.away = {VILLAIN}
        self.without = self.rounds()
        self.link.away = set()
        self.clean = self.rounds()

    def rounds(self, meddle=None):
        """The states after rounds 1 and 2, the events, and what agents sent; `meddle` changes the villain's answers in round 1."""
        self.link.meddle, self.link.seen = meddle, []
        shutil.copytree(self.copy, self.disks, dirs_exist_ok=True)
        self.engine.events.take()
        after, _ = self.engine.run(self.first, 1)
        events = self.engine.events.take()
        self.link.meddle, self.link.away = None, set()
        last, _ = self.engine.run(after, 1, accumulate=True)
        return SimpleNamespace(states=(after.rows, last.rows), events=events)


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:  # it compiles longer than it runs
        patch.setitem(simulate.COMPILER_OPTIONS, "cpu", {"xla_backend_optimization_level": 0})
        return Federation(tmp_path_factory.mktemp("federation"))


def assert_same(states, expected, refused: int) -> None:
    """Every bit of the state is the same, but for the count of messages refused."""
    for one, other in zip(states, expected, strict=True):
        assert one.refused[0].tolist() == [0, refused, 0]
        assert other.refused[0].tolist() == [0, 0, 0]
        names = named_arrays.flatten(one._replace(refused=0))
        for (name, a), b in zip(names.items(), named_arrays.flatten(other._replace(refused=0)).values(), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)


def assert_same_server(states, expected) -> None:
    for one, other in zip(states, expected, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one.server, other.server)


def tampered(change):
    """Changes what the villain sends."""
    return lambda agent, task, packet, answer: change(answer) if agent == VILLAIN else answer


def arrays(change):
    return lambda answer: with_arrays(answer, change)


def put(name, index, value):
    return arrays(lambda arrays: arrays[name].__setitem__(index, value))


def header(**values):
    return lambda answer: edited(answer, lambda header: header.update(values))


def renamed(arrays):
    arrays["message['other']"] = arrays.pop(MESSAGE)


HOSTILE = {
    "nan": (put(MESSAGE, (0, 0), np.nan), "message['logits'] is not finite"),
    "inf": (put(MESSAGE, (2, 1), -np.inf), "message['logits'] is not finite"),
    "nan in its costs": (put("info.usage.total_return", (), np.nan), "info.usage.total_return is not finite"),
    "norm of 1e30": (put(MESSAGE, (0, 0), 1e30), "a norm of 1e+30 is above the bound of 1e+06"),
    "norm above the bound": (put(MESSAGE, (0, 0), 1.1e6), "a norm of 1.1e+06 is above the bound of 1e+06"),
    "shape": (
        arrays(lambda a: a.update({MESSAGE: a[MESSAGE].T[:2]})),
        "the array message['logits'] is float32[2, 5], expected float32[5, 5]",
    ),
    "type": (
        arrays(lambda a: a.update({MESSAGE: a[MESSAGE].astype(np.float64)})),
        "the array message['logits'] is float64[5, 5], expected float32[5, 5]",
    ),
    "missing": (arrays(lambda a: a.pop(MESSAGE)), "the arrays do not fit this run: message['logits'] on one side only"),
    "extra": (arrays(lambda a: a.update(more=np.zeros(2))), "the arrays do not fit this run: more on one side only"),
    "another name": (arrays(renamed), "the arrays do not fit this run: message['logits'], "),
    "another run": (header(run="run-1"), "an answer of another run, or for another agent"),
    "another agent's number": (header(agent=0), "an answer of another run, or for another agent"),
    "no such agent": (header(agent=77), "an answer of another run, or for another agent"),
    "another task": (header(serial=5), "an answer to another task, or to an old round"),
    "cut short": (lambda answer: answer[:-1], "a damaged packet (SafetensorError)"),
    "cut to nothing": (lambda answer: b"", "not a packet of fedpg"),
    "no packet": (lambda answer: b"\x00\xff" * 500, "not a packet of fedpg"),
    "a pickle": (lambda answer: b"cos\nsystem\n(S'true'\ntR.", "not a packet of fedpg"),
    "far too long": (lambda answer: answer + b"\0" * (1 << 20), "bytes are more than the"),
    "no names": (lambda answer: edited(answer, lambda header: {}), "Object missing required field `serial`"),
    "one name more": (header(code="import os"), "Object contains unknown field `code`"),
    "fresh is a number": (header(fresh=1), "Expected `bool`, got `int` - at `$.fresh`"),
    "serial is a text": (header(serial="1"), "Expected `int`, got `str` - at `$.serial`"),
    "serial is a truth": (header(serial=True), "Expected `int`, got `bool` - at `$.serial`"),
    "agent is a fraction": (header(agent=1.5), "Expected `int`, got `float` - at `$.agent`"),
    "agent is huge": (header(agent=2**70), "- at `$.agent`"),
    "run is none": (header(run=None), "Expected `str`, got `null` - at `$.run`"),
    "events are a text": (header(events="abc"), "Expected `array`, got `str` - at `$.events`"),
    "events are endless": (header(events=["x"] * 1000), "Expected `array` of length <= 20 - at `$.events`"),
    "events are numbers": (header(events=[1]), "Expected `str`, got `int` - at `$.events[0]`"),
    "withheld": (lambda answer: with_arrays(edited(answer, lambda header: header.update(withheld=True)), dict.clear), "on one side only"),
    "an error": (header(error="no power\nat all\r\x1b[2J\x00\u202egnp.exe"), "no power at all  [2J  gnp.exe"),
    "a long error": (header(error="x" * 9_000), "x" * 280),
    "an error of strange letters": (header(error="Ωmega"), "Ωmega"),
    "half a letter": (header(error="\ud800"), "a damaged packet (DecodeError)"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_answer_is_refused_recorded_and_touches_nothing(federation, kind):
    change, what = HOSTILE[kind]
    found = federation.rounds(tampered(change))
    assert_same(found.states, federation.without.states, refused=1)
    assert len(found.events) == 1
    event = found.events[0]
    assert (event["round"], event["during"], event["agent"]) == (1, "training", VILLAIN)
    assert event["what"].startswith("refused: ")
    assert what in event["what"]
    assert_one_line(event["what"])


def test_the_clean_run_uses_the_villain_s_message_and_the_others(federation):
    """What the others are compared with is not what happens anyway, nor what happens without anybody."""
    with_all, without = federation.clean.states[0].server, federation.without.states[0].server
    assert np.abs(with_all.shared.params["logits"] - without.shared.params["logits"]).max() > 1e-4
    before = federation.first.rows.server.shared.params["logits"]
    assert np.abs(without.shared.params["logits"] - before).max() > 1e-4
    assert federation.clean.events == []
    assert [event["what"] for event in federation.without.events] == ["absent"]


def test_what_a_message_cost_may_be_as_large_as_it_likes(federation):
    found = federation.rounds(tampered(put("info.weights.squares", (), 1e38)))
    assert_same_server(found.states, federation.clean.states)
    assert found.events == []


def test_an_earlier_answer_is_refused_when_it_is_sent_again(federation):
    found = federation.rounds(tampered(lambda answer: federation.old[VILLAIN]))
    assert_same(found.states, federation.without.states, refused=1)
    assert found.events[0]["what"] == "refused: an answer to another task, or to an old round"


def test_another_agent_s_answer_is_refused(federation):
    caught = {}

    def swap(agent, task, packet, answer):
        caught[agent] = answer
        return caught[2] if agent == VILLAIN else answer  # agent 2 is asked before

    found = federation.rounds(swap)
    assert_same(found.states, federation.without.states, refused=1)
    assert found.events[0]["what"] == "refused: an answer of another run, or for another agent"


@pytest.mark.parametrize("line", ["no answer within 3 seconds", "error:\n\x1b]0;title\x07 Traceback" + "x" * 500, ""])
def test_no_answer_is_no_refusal_but_is_recorded_too(federation, line):
    found = federation.rounds(lambda agent, task, packet, answer: line if agent == VILLAIN else answer)
    assert_same(found.states, federation.without.states, refused=0)
    assert [event["agent"] for event in found.events] == [VILLAIN]
    assert_one_line(found.events[0]["what"])


def test_events_of_an_agent_are_made_fit_for_a_log_and_do_not_hide_its_message(federation):
    lines = ["step raised\nValueError", "\x1b[1mbold", "y" * 999]
    found = federation.rounds(tampered(header(events=lines, fresh=True)))
    assert_same(found.states, federation.clean.states, refused=0)
    assert [event["what"] for event in found.events] == [
        "step raised ValueError", " [1mbold", "y" * LONGEST_TEXT, "its state was gone: it started from the first one",
    ]  # fmt: skip


def test_fuzzed_answers_leave_the_state_untouched(federation):
    """Those of which the packet or its header is damaged: all of these can be noticed."""
    answers = {}
    federation.rounds(lambda agent, task, packet, answer: answers.setdefault(agent, answer))
    damaged = [data for i, data in enumerate(mutations(answers[VILLAIN], 60, seed=3)) if i % 8 in (1, 2, 3, 6, 7)]
    for data in damaged[:10]:
        found = federation.rounds(tampered(lambda answer, data=data: data))
        assert_same(found.states, federation.without.states, refused=1)
        assert found.events[-1]["what"].startswith("refused: ")

"""Nothing but the message leaves: no observation, action or reward is in any payload, whatever happens in the environment."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fedpg.flower.agent import AgentProgram
from fedpg.flower.protocol import Answer, pack, unpack
from fedpg.flower.server import Rules
from fedpg.flower.server_app import make_server
from fedpg.runs.config import Config
from fedpg.runs.setup import resolve
from fedpg.simulate import State
from helpers import telltale
from helpers.agents import Direct, agents_of

SMALL = {"agents": 1, "rounds": 9, "local_steps": 2, "batch": 2, "horizon": 3, "eval_episodes": 2, "local_lr": 1e-3, "u0": 1}


@pytest.fixture(autouse=True)
def forgetful():
    telltale.forget()


def federation(algorithm: str, own: dict | None = None, **settings):
    """An engine and its link."""
    config = resolve(Config(env="helpers.telltale:make", algorithm=algorithm, **(SMALL | settings)))
    link = Direct(agents_of(config, **(own or {})))
    return make_server(config, "run-0", lambda terms, note: link, Rules(norm_bound=1e12)), link


def run(engine, rounds: int = 2) -> State:
    state, _ = engine.run(engine.init(jax.random.key(0)), rounds)
    engine.evaluate(state)
    return state


def payloads(link: Direct) -> list[bytes | str]:
    return [data for _, _, packet, answer in link.seen for data in (packet, answer)]


def assert_tight(link: Direct) -> None:
    for _, task, packet, answer in link.seen:
        for data in (packet, answer):
            assert telltale.leaks(data) == [], task.kind


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("fedsvrpg-m", {"normalise_observations": "running"}),
        ("fedhapg-m", {"normalise_observations": "off"}),
        ("calm", {"normalise_observations": "off", "compression": "float16"}),
        ("scaffold", {"normalise_observations": "off"}),
    ],
)
def test_no_observation_action_or_reward_is_in_any_payload(algorithm, settings):
    engine, link = federation(algorithm, **settings)
    run(engine)
    kinds = {task.kind for _, task, _, _ in link.seen}
    assert kinds == {"update", "evaluate"}
    assert len(set(telltale.SECRETS)) > 100
    assert min(np.abs(telltale.SECRETS)) > 1e-6, "none is a number that may be anywhere"
    assert_tight(link)
    assert engine.events.take() == []


@pytest.fixture
def trained():
    engine, link = federation("pavg", normalise_observations="off")
    return engine, link, run(engine, 1)


def test_the_search_finds_what_it_looks_for(trained, monkeypatch):
    """A message that holds one observation, an action in a cost, a reward in a line: each is found."""
    engine, link, state = trained
    assert_tight(link)
    honest = AgentProgram.update

    def betray(kind):
        def update(self, task, shared, state):
            sent, state = honest(self, task, shared, state)
            observation, reward = telltale.SECRETS[-1], telltale.SECRETS[-3]
            layer = sent.message["layers"][0]
            layer["bias"] = np.array(layer["bias"])
            if kind == "observation":
                layer["bias"][0] = observation
            elif kind == "rounded observation":
                layer["bias"][0] = np.float16(observation)
            elif kind == "reward":
                usage = sent.info.usage._replace(total_return=np.asarray(reward, np.float32))
                sent = sent._replace(info=sent.info._replace(usage=usage))
            return sent, state

        return update

    for kind, found in (("observation", True), ("rounded observation", True), ("reward", True), ("", False)):
        monkeypatch.setattr(AgentProgram, "update", betray(kind))
        link.seen.clear()
        engine.run(state, 1)
        assert any(telltale.leaks(data) for data in payloads(link)) == found, kind
    for text in (f"stopped at {telltale.SECRETS[0]}", f"stopped at {telltale.SECRETS[0]:.4f}"):
        assert telltale.leaks(text)
        assert telltale.leaks(pack(Answer(0, "", 0, error=text), {}))


@pytest.mark.parametrize(
    ("mishap", "line"), [("raise", "step raised ValueError"), ("strange", "step raised RuntimeError"), ("huge", "reward is inf")]
)
def test_what_goes_wrong_is_told_without_numbers(trained, mishap, line, monkeypatch):
    engine, link, state = trained
    monkeypatch.setattr("fedpg.flower.server.PAUSE", 0.0)
    telltale.MISHAP.append(mishap)
    link.seen.clear()
    engine.run(state, 1)
    lines = [event["what"] for event in engine.events.take()]
    assert line in lines
    assert [line for line in lines if line.startswith("refused")] == 3 * ["refused: message['layers'][0]['bias'] is not finite"]
    assert_tight(link)
    assert not any(telltale.leaks(line) for line in lines)


def test_one_that_withholds_sends_messages_and_nothing_else(monkeypatch):
    engine, link = federation("pavg", {"withhold": True}, normalise_observations="off")
    state = run(engine)
    assert_tight(link)
    assert engine.withheld, "the run may go on without scores"
    for _, task, _, answer in link.seen:
        header, arrays = unpack(answer, Answer)
        if task.kind == "update":
            assert all(name.startswith("message") or not array.any() for name, array in arrays.items())
        else:
            assert (task.kind, header.withheld, arrays) == ("evaluate", True, {})
    monkeypatch.setattr("fedpg.flower.server.PAUSE", 0.0)
    telltale.MISHAP.append("raise")
    link.seen.clear()
    engine.run(state, 1)
    headers = [unpack(answer, Answer)[0] for _, _, _, answer in link.seen]
    assert [bool(header.error) for header in headers] == [True] * 3
    assert [header.events for header in headers] == [()] * 3, "not even what went wrong"

"""Nothing but the message leaves: no observation, action or reward is in any payload, whatever happens in the environment."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.flower import packets, tasks, work
from fedpg.flower.server import Rules, engine_of
from fedpg.runs.config import Config
from fedpg.runs.setup import resolve
from helpers import telltale
from helpers.sites import Direct, sites_of

SMALL = {"agents": 1, "rounds": 9, "local_steps": 2, "batch": 2, "horizon": 3, "eval_episodes": 2, "local_lr": 1e-3, "u0": "1"}


@pytest.fixture(autouse=True)
def forgetful():
    telltale.forget()


def federation(algorithm: str, own: dict | None = None, **settings):
    """An engine and its link."""
    config = resolve(Config(env="helpers.telltale:make", algorithm=algorithm, **(SMALL | settings)))
    link = Direct(sites_of(config, **(own or {})))
    return engine_of(config, "run-0", lambda terms, note: link, Rules(norm_bound=1e12)), link


def run(engine, rounds: int = 2) -> None:
    engine.start()
    engine.advance(0, rounds)
    engine.evaluate(rounds)


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
        ("fedsvrpg-s", {"normalise_observations": "off", "compression": "float16"}),
        ("scaffold", {"normalise_observations": "off"}),
    ],
)
def test_no_observation_action_or_reward_is_in_any_payload(algorithm, settings):
    engine, link = federation(algorithm, **settings)
    run(engine)
    kinds = {task.kind for _, task, _, _ in link.seen}
    assert kinds == {tasks.UPDATE, tasks.EVALUATE}
    assert len(set(telltale.SECRETS)) > 100
    assert min(np.abs(telltale.SECRETS)) > 1e-6, "none is a number that may be anywhere"
    assert_tight(link)
    assert engine.log.take() == []


@pytest.fixture
def trained():
    engine, link = federation("pavg", normalise_observations="off")
    run(engine, 1)
    return engine, link


def test_the_search_finds_what_it_looks_for(trained, monkeypatch):
    """A message that holds one observation, an action in a cost, a reward in a line: each is found."""
    engine, link = trained
    assert_tight(link)
    honest = work.Work.update

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
        monkeypatch.setattr(work.Work, "update", betray(kind))
        link.seen.clear()
        engine.advance(1, 1)
        assert any(telltale.leaks(data) for data in payloads(link)) == found, kind
    for text in (f"stopped at {telltale.SECRETS[0]}", f"stopped at {telltale.SECRETS[0]:.4f}"):
        assert telltale.leaks(text)
        assert telltale.leaks(packets.pack({"error": text}, {}))


@pytest.mark.parametrize(
    ("mishap", "line"), [("raise", "step raised ValueError"), ("strange", "step raised RuntimeError"), ("huge", "reward is inf")]
)
def test_what_goes_wrong_is_told_without_numbers(trained, mishap, line, monkeypatch):
    engine, link = trained
    monkeypatch.setattr("fedpg.flower.remote.PAUSE", 0.0)
    telltale.MISHAP.append(mishap)
    link.seen.clear()
    engine.advance(1, 1)
    lines = [event["what"] for event in engine.log.take()]
    assert line in lines
    assert [line for line in lines if line.startswith("refused")] == 3 * ["refused: message['layers'][0]['bias'] is not finite"]
    assert_tight(link)
    assert not any(telltale.leaks(line) for line in lines)


def test_one_that_withholds_sends_messages_and_nothing_else(monkeypatch):
    engine, link = federation("pavg", {"withhold": True}, normalise_observations="off")
    run(engine)
    assert_tight(link)
    assert engine.withheld, "the run may go on without scores"
    for _, task, _, answer in link.seen:
        header, arrays = packets.unpack(answer)
        if task.kind == tasks.UPDATE:
            assert all(name.startswith("message") or not array.any() for name, array in arrays.items())
        else:
            assert (task.kind, header["withheld"], arrays) == (tasks.EVALUATE, True, {})
    monkeypatch.setattr("fedpg.flower.remote.PAUSE", 0.0)
    telltale.MISHAP.append("raise")
    link.seen.clear()
    engine.advance(2, 1)
    headers = [packets.unpack(answer).header for _, _, _, answer in link.seen]
    assert [bool(header["error"]) for header in headers] == [True] * 3
    assert [header["events"] for header in headers] == [[]] * 3, "not even what went wrong"

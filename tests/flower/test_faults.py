"""Agents that die, hang, come late or lose their disk: the federation goes on without them, and with them when they are back."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from fedpg.flower.seats import JOINED
from helpers.failing_env import hanging
from helpers.network import cable
from helpers.real import federation

pytestmark = pytest.mark.federation
DEADLINE, ROUNDS = 30.0, 30
NAMES = ("a", "b", "c")
WALK = {"env": "helpers.failing_env:make", "algorithm": "pavg"}


@pytest.fixture
def orders(tmp_path, monkeypatch) -> Path:
    """The file that tells environments what to do; see `helpers.failing_env`."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
    return tmp_path / "orders"


def walkers(folder, orders, flags=("--deadline", f"{DEADLINE:g}"), **config):
    """A federation of agents in environments that take orders."""
    options = {"name": list(NAMES), "orders": str(orders)}
    return federation(folder, flags, env_option=options, **WALK | config)


def let_walk(real, orders, agent):
    real.join(agent, "--env-option", f"name={NAMES[agent]}", f"orders={orders}")


def let_all_walk(real, orders):
    real.serve()
    for agent in range(3):
        let_walk(real, orders, agent)


def hang(real, orders) -> int:
    """Agent 1, some time after the first round, does not come back from a step; the round it is in."""
    real.wait_until(lambda: real.round() >= 1)
    orders.write_text("b:hang")
    real.wait_until(hanging(orders, "b").exists)
    return real.round()


def test_an_agent_that_is_killed_in_the_middle_of_a_round(tmp_path, orders):
    with walkers(tmp_path, orders, rounds=ROUNDS) as real:
        let_all_walk(real, orders)
        during = hang(real, orders)
        real.kill("join-1")
        real.wait_until(lambda: real.round() > during, DEADLINE + 60)
        began = time.monotonic()
        real.wait_until(lambda: real.round() > during + 1)
        took = time.monotonic() - began
        orders.write_text("a:slow c:slow")  # so that there are rounds left when it is back
        let_walk(real, orders, 1)
        real.wait_until(lambda: real.is_present(1))
        back = real.round()
        orders.unlink()
        real.finish()
    lost = real.missed(1)
    assert lost[during].startswith((f"no answer within {DEADLINE:g} seconds", "its node has gone", "Flower reports error 5"))
    assert set(lost) == set(range(during, max(lost) + 1)), "away from the round it died in, and then back for good"
    assert {lost[round] for round in lost if round > during} == {"absent"}
    assert max(lost) <= back < ROUNDS - 1
    assert took < DEADLINE, "nobody waits for it twice"
    assert not real.missed(0)
    assert not real.missed(2)
    real.check_whole()


def test_an_agent_that_hangs_past_the_deadline(tmp_path, orders):
    with walkers(tmp_path, orders, rounds=ROUNDS) as real:
        let_all_walk(real, orders)
        during = hang(real, orders)
        real.wait_until(lambda: real.round() > during + 1, DEADLINE + 90)
        orders.write_text("a:slow c:slow")
        real.wait_until(lambda: real.is_present(1))
        orders.unlink()
        real.finish()
    lost = real.missed(1)
    assert lost[during] == f"no answer within {DEADLINE:g} seconds"
    assert lost[during + 1] == "absent"
    assert max(lost) < ROUNDS - 1, "it takes part again, though it was never started again"
    assert not real.missed(0)
    assert not real.missed(2)
    real.check_whole()


def test_an_agent_that_joins_at_round_three(tmp_path, orders):
    with walkers(tmp_path, orders, ("--start-with", "2"), rounds=ROUNDS, algorithm="scaffold") as real:
        real.serve()
        let_walk(real, orders, 0)
        let_walk(real, orders, 1)
        real.wait_until(lambda: real.round() >= 2)
        orders.write_text("a:slow b:slow")  # so that there are rounds left when it is there
        let_walk(real, orders, 2)
        real.wait_until(lambda: real.is_present(2))
        orders.unlink()
        rows = real.finish()
    assert [event["what"] for event in real.events(2)] == [JOINED], "a free seat is not a missed round"
    assert 2 <= real.events(2)[0]["round"] < ROUNDS
    assert rows[0]["return_per_agent"][2] is None
    assert rows[-1]["return_per_agent"][2] is not None
    assert not real.missed(0)
    assert not real.missed(1)


def test_agents_whose_disks_are_wiped(tmp_path, orders):
    anew = "its state was gone: it started from the first one"
    with walkers(tmp_path, orders, rounds=ROUNDS, algorithm="scaffold") as real:
        let_all_walk(real, orders)
        real.wait_until(lambda: real.round() >= 2)
        shutil.rmtree(tmp_path / "agent-1" / "states")  # while it runs
        real.kill("join-2")
        shutil.rmtree(tmp_path / "agent-2")  # while it is down
        real.wait_until(lambda: not real.is_present(2))
        orders.write_text("a:slow b:slow")  # so that there are rounds left when it is back
        let_walk(real, orders, 2)
        real.wait_until(lambda: real.is_present(2))
        orders.unlink()
        rows = real.finish()
    began_anew = {agent: [event for event in real.events(agent) if event["what"] == anew] for agent in range(3)}
    assert [len(began_anew[agent]) for agent in range(3)] == [0, 1, 1]
    assert 1 <= began_anew[1][0]["round"] <= 6
    assert began_anew[2][0]["round"] > max(real.missed(2))
    assert not real.missed(1), "a state that is gone costs no round"
    assert list((tmp_path / "agent-1" / "states").glob("*/*.safetensors")), "it remembers again"
    assert None not in rows[-1]["return_per_agent"]
    real.check_whole()


def test_a_network_that_is_cut_for_twenty_seconds(tmp_path, orders):
    with cable() as between, walkers(tmp_path, orders, ("--deadline", "18"), rounds=ROUNDS) as real:
        real.address = f"{between.host}:9092"
        real.inside = dict.fromkeys(("serve", "join-0", "join-1"), between.server) | {"join-2": between.agent}
        let_all_walk(real, orders)
        real.wait_until(lambda: real.round() >= 2 and real.status()["phase"] == "training" and real.agent(2)["state"] == "at work")
        during = real.round()
        between.cut()
        time.sleep(20.0)
        between.mend()
        orders.write_text("a:slow b:slow")
        real.wait_until(lambda: real.is_present(2))
        orders.unlink()
        real.finish()
        assert real.processes["join-2"].poll() is None, "it was never started again"
    lost, counted = real.missed(2), {event["round"] for event in real.events(2) if "came late, and counts in" in event["what"]}
    assert lost[during] == "no answer within 18 seconds"
    away = set(lost) | counted
    assert away == set(range(during, max(away) + 1)), "its late answer may count before it is back, or when it is"
    assert max(lost) < ROUNDS - 1, "it is back"
    assert not real.missed(0)
    assert not real.missed(1)
    real.check_whole()

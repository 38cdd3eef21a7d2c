"""A server that dies, whole or in part: agents wait and come back, and the run ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal

import pytest

from fedpg.flower.server_app import PROCESS
from helpers.real import Real, descendants, federation, named
from helpers.rounds import SERVER, error, part, saved, simulated

pytestmark = pytest.mark.federation
ROUNDS = 6


def begin(real: Real) -> None:
    """A server and its agents, until two rounds are done and the third is under way."""
    real.serve()
    for agent in range(real.config.agents):
        real.join(agent)
    real.wait_until(lambda: real.round() >= 2 and real.status()["phase"] == "training" and real.agent(0)["state"] == "at work")


def assert_as_if_nothing_had_happened(real: Real) -> None:
    """All rounds, with all agents: so the state is the one of a run that was not disturbed."""
    real.check_whole()
    assert not any(real.missed(agent) for agent in range(real.config.agents))
    round, arrays = saved(real)
    assert round == ROUNDS
    assert error(part(arrays, SERVER), part(simulated(real.config)[ROUNDS], SERVER)) < 1e-5
    assert all(real.processes[f"join-{agent}"].poll() is not None for agent in range(real.config.agents))


def resumed(real: Real) -> list[int]:
    """After how many rounds the run was taken up again."""
    return [resume["round"] for resume in json.loads((real.out / "manifest.json").read_text())["resumed"]]


def test_a_server_that_is_killed_and_started_again(tmp_path):
    with federation(tmp_path, rounds=ROUNDS, algorithm="scaffold", eval_every=2) as real:
        begin(real)
        done = real.round()
        real.kill("serve")
        before = real.lines("metrics.jsonl")
        real.serve("--resume")
        real.finish()
        assert all(real.processes[f"join-{agent}"].poll() is None for agent in range(3)), "agents outlive their server"
    assert resumed(real) == [done]
    assert real.lines("metrics.jsonl")[: len(before)] == before
    assert_as_if_nothing_had_happened(real)


def test_a_server_app_that_is_killed(tmp_path):
    with federation(tmp_path, rounds=ROUNDS, algorithm="scaffold") as real:
        begin(real)
        done = real.round()
        os.kill(int((real.out / "federation" / PROCESS).read_text()), signal.SIGKILL)
        real.finish()
    assert resumed(real) == [done]
    assert_as_if_nothing_had_happened(real)


def test_a_superlink_that_is_killed(tmp_path):
    with federation(tmp_path, rounds=ROUNDS, algorithm="scaffold") as real:
        begin(real)
        done = real.round()
        (link,) = named(real.processes["serve"].pid, "flower-superlink")
        os.kill(link, signal.SIGKILL)
        assert real.processes["serve"].wait(30) == 2
        assert "continue with --resume" in real.log("serve")
        assert not descendants(real.processes["serve"].pid)
        real.serve("--resume")
        real.finish()
    assert resumed(real) == [done]
    assert_as_if_nothing_had_happened(real)

"""A server that dies, whole or in part: agents wait and come back, and the run ends as if nothing had happened."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fedpg.flower.processes import RUNNING, identity
from fedpg.flower.serving import KILLED
from helpers.real import Real, descendants, federation
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


def test_a_server_all_of_whose_processes_are_killed(tmp_path):
    """Alone they are killed in test_kills.py."""
    with federation(tmp_path, rounds=ROUNDS, algorithm="scaffold", eval_every=2) as real:
        begin(real)
        done, started = real.round(), descendants(real.processes["serve"].pid)
        real.kill("serve")
        before = real.lines("metrics.jsonl")
        real.serve("--resume")
        real.finish()
        assert not any(identity(process) for process in started)
        assert all(real.processes[f"join-{agent}"].poll() is None for agent in range(3)), "agents outlive their server"
    (resumed,) = json.loads((real.out / "manifest.json").read_text())["resumed"]
    assert resumed["round"] in (done, done + 1)
    assert real.lines("metrics.jsonl")[: len(before)] == before
    assert [event["what"] for event in real.events() if event["during"] == "resuming"][:1] == [KILLED]
    assert not (real.out / "federation" / RUNNING).exists()
    assert_as_if_nothing_had_happened(real)


def test_a_process_with_the_number_of_a_dead_one_is_not_touched(tmp_path):
    """The record names a living process of somebody else's, which began at another time."""
    with (
        federation(tmp_path, rounds=1, agents=1) as real,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other,
    ):
        who = identity(other.pid)
        (real.out / "federation").mkdir(parents=True)
        (real.out / "federation" / RUNNING).write_text(json.dumps({"superlink": [who[0], "1", who[2]]}))
        real.serve()
        real.join(0)
        real.finish()
        assert identity(other.pid) == who
        other.communicate(b"\n")

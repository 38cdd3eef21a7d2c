"""Whoever is refused is refused at once, in plain words, on both sides: real processes, and the four places where people look."""

from __future__ import annotations

import json
import shutil
import sys
import time
import urllib.request

import pytest

from fedpg.flower.keys import make_keys
from fedpg.flower.processes import free_port
from helpers.real import PATIENCE, Real, federation

pytestmark = pytest.mark.federation
SECONDS = 5.0
"""From the moment an agent greets the server until everyone knows that it is refused."""
PATCHED = """
import sys, time
from types import SimpleNamespace
from fedpg.flower import greeting
{patch}
from fedpg.cli import main
sys.exit(main(sys.argv[1:]))
"""
OLD = "greeting.version = lambda name: '0.0.1'"
CLOCK = "greeting.time = SimpleNamespace(time=lambda: time.time() - 1000.0, monotonic=time.monotonic)"


def join(real: Real, name: str, agent: int, env: str, secure: tuple[str, ...], patch: str = "", *more: str) -> None:
    words = ["join", "--server", real.address, "--agent-id", str(agent), "--env", env, "--folder", str(real.folder / name), *secure]
    real.launch(name, [sys.executable, "-c", PATCHED.format(patch=patch), *words, *more])


def test_each_refusal_in_all_four_places(tmp_path):
    keys, strange, swapped, foreign = (tmp_path / name for name in ("keys", "strange", "swapped", "foreign"))
    make_keys(keys, (), 3)
    make_keys(strange, (), 3)
    shutil.copytree(keys, swapped)
    shutil.copy(keys / "agent-1", swapped / "agent-0")
    shutil.copytree(keys, foreign)
    shutil.copy(strange / "ca.crt", foreign / "ca.crt")
    shutil.copy(keys / "ca.crt", strange / "ca.crt")
    page, mine = free_port(), ("--keys", str(keys))
    cases = {
        "unknown key": ((1, "random-mdp", ("--keys", str(strange))), "unknown key: put its agent-I.pub into"),
        "wrong number": ((0, "random-mdp", ("--keys", str(swapped))), "it says that it is agent 0, but has the key of agent 1"),
        "wrong shapes": ((0, "cartpole", mine), "its environment has observations of 4 numbers, actions 1 of 2; this federation has"),
        "wrong version": ((0, "random-mdp", mine, OLD), "it has fedpg 0.0.1, the server"),
        "wrong clock": ((0, "random-mdp", mine, CLOCK), "seconds behind the server's: set it right"),
        "full": ((2, "random-mdp", mine), "there is no agent 2 in a federation of 2"),
        "no TLS": ((0, "random-mdp", ("--insecure",)), "does not speak TLS: agents must give --keys"),
        "foreign certificate": ((0, "random-mdp", ("--keys", str(foreign))), "does not accept this server's certificate"),
    }
    at_the_agent = {"no TLS": "speaks TLS: give --keys FOLDER", "foreign certificate": "is this the right server, and the right ca.crt?"}
    with federation(tmp_path, ("--status", f"127.0.0.1:{page}"), agents=2, rounds=1, algorithm="pavg") as real:
        real.secure = mine
        real.serve()
        real.wait_until(lambda: real.status().get("phase") == "waiting")
        for name, (arguments, why) in cases.items():
            join(real, name, *arguments)
            real.wait_until(lambda name=name: "greeting 127" in real.log(name))
            began = time.monotonic()
            told = at_the_agent.get(name, why)
            while not any(why in event["what"] for event in real.events()) or why not in real.log("serve") or told not in real.log(name):
                assert time.monotonic() - began < SECONDS, (name, real.log(name), real.events(), real.log("serve"))
                time.sleep(0.1)
            shown = json.loads(urllib.request.urlopen(f"http://127.0.0.1:{page}/status.json").read())
            assert any(why in event["what"] for event in shown["events"]), name
            assert time.monotonic() - began < SECONDS, name
            code, (*_, last) = real.processes[name].wait(PATIENCE), real.log(name).strip().splitlines()
            assert (code, last.startswith("fedpg: "), told in last) == (2, True, True), (name, real.log(name))
            assert not any(agent["accepted"] or agent["state"] != "not here yet" for agent in shown["agents"]), name
        real.join(0, "--once")
        real.join(1, "--once")
        real.finish()
        for agent in range(2):
            assert real.processes[f"join-{agent}"].wait(PATIENCE) == 0
            assert "the run is over: return " in real.log(f"join-{agent}")
    assert {event["during"] for event in real.events() if "refused" in event["what"]} == {"greeting"}

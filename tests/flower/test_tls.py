"""A federation with keys: it works, it takes agents back that were killed, and whoever listens learns nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from helpers.capture import Ear, listening
from helpers.network import cable
from helpers.real import Real, federation
from helpers.rounds import Arrays, watched

pytestmark = pytest.mark.federation
SMALLEST = 64
"""Bytes of an array that cannot turn up by chance."""


def make_keys(real: Real, agents: int) -> None:
    """`fedpg cert`, and the federation uses it."""
    keys = real.folder / "keys"
    command = [sys.executable, "-m", "fedpg", "cert", "--out", str(keys), "--server", "127.0.0.1", "--agents", str(agents)]
    subprocess.run(command, check=True, capture_output=True)
    real.secure = ("--keys", str(keys))


def test_an_agent_that_was_killed_comes_back_with_its_key(tmp_path):
    with federation(tmp_path, ("--quorum", "2", "--deadline", "20"), agents=2, rounds=5, algorithm="scaffold") as real:
        make_keys(real, 2)
        real.serve()
        real.join(0)
        real.join(1)
        real.wait_until(lambda: real.round() >= 2 and real.status()["phase"] == "training" and real.agent(1)["state"] == "at work")
        during = real.round()
        real.kill("join-1")
        real.join(1)
        real.finish()
    assert set(real.missed(1)) <= {during, during + 1}
    repeated = [event for event in real.events() if "fewer than 2 usable messages: the exchange is repeated" in event["what"]]
    assert {event["round"] for event in repeated} == set(real.missed(1)) != set()
    assert not real.missed(0)


def heard(ear: Ear, states: dict[int, Arrays]) -> list[str]:
    """The arrays of the server's states that were said aloud."""
    said = ear.everything()
    arrays = {f"{name} after {round} rounds": array.tobytes() for round, state in states.items() for name, array in state.items()}
    return [name for name, data in arrays.items() if len(data) >= SMALLEST and data in said]


@pytest.mark.parametrize("secure", [True, False], ids=["keys", "insecure"])
def test_whoever_listens_on_the_loopback_interface(tmp_path, secure):
    """Without keys everything is heard: so the ear is not deaf."""
    small = {"agents": 2, "rounds": 2, "env": "cartpole", "eval_episodes": 2}
    with cable() as between, listening(between.spaces[0]) as ear, federation(tmp_path, **small) as real:
        real.inside = dict.fromkeys(("serve", "join-0", "join-1"), between.server)  # where no other test talks
        if secure:
            make_keys(real, 2)
        real.serve()
        real.join(0)
        real.join(1)
        states = watched(real)
        real.finish(1.0)
    assert sorted(states) == [0, 1, 2]
    port = int(real.address.rpartition(":")[2])
    assert sum(len(ear.stream(ports)) for ports in ear.said if port in ports) > 10_000, "they have talked"
    said = heard(ear, states)
    if secure:
        assert not said
        assert b'"from_state"' not in ear.everything(), "headers of our packets"
    else:
        assert {name for name in said if name.startswith("server.shared.params")} >= {
            f"server.shared.params['layers'][1]['matrix'] after {round} rounds" for round in range(3)
        }
        up = b"".join(ear.stream(ports) for ports in ear.said if ports[1] == port)
        assert b'"withheld"' in up, "an agent's answer"

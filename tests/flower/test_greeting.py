"""The greeting: who is welcome, who is not, and that nobody who greets changes anything."""

from __future__ import annotations

import base64
import time
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from fedpg.envs import cartpole
from fedpg.errors import UserError
from fedpg.flower import greeting, web
from fedpg.flower.greeting import MAX_REFUSALS, NOT_NOW, REFUSED, WELCOME, Door, Greeting, greet, my_greeting
from fedpg.flower.keys import flower_key, make_keys
from fedpg.flower.protocol import spaces_of
from fedpg.flower.proxy import Proxy

SPACES = spaces_of(cartpole.ENVIRONMENT)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "theirs"):
        make_keys(folder / name, (), 2)
    return folder


def door(keys=None) -> tuple[Door, list]:
    owners = {base64.b64encode(flower_key(keys / f"agent-{i}.pub")).decode(): i for i in range(2)} if keys else {}
    lines: list = []
    return Door(2, SPACES, owners, lambda agent, line: lines.append((agent, line))), lines


def answer(made: Door, said: Greeting) -> tuple[int, str]:
    return made.answer(msgspec.json.encode(said), "192.0.2.1")


def test_who_is_welcome_and_who_is_not(keys):
    made, lines = door(keys / "ours")
    good = my_greeting(1, cartpole.ENVIRONMENT, keys / "ours")
    assert answer(made, good) == (WELCOME, "")
    assert not lines
    for changes, why in (
        ({"key": my_greeting(1, cartpole.ENVIRONMENT, keys / "theirs").key}, "unknown key"),
        ({"agent": 0}, "it says that it is agent 0, but has the key of agent 1"),
        ({"fedpg": "9.9"}, "it has fedpg 9.9"),
        ({"flwr": "9.9"}, "it has flwr 9.9"),
        ({"time": time.time() - 400}, "its clock is 400 seconds behind"),
        ({"time": time.time() + 60}, "its clock is 60 seconds ahead of"),
        ({"spaces": "observations of 3 numbers, actions 1 of 2"}, "its environment has observations of 3 numbers"),
    ):
        code, line = answer(made, msgspec.structs.replace(good, **changes))
        assert (code, why in line) == (REFUSED, True), line
        assert why in lines[-1][1]
    made.present = lambda: {1: 77}
    assert answer(made, good) == (NOT_NOW, "there is an agent 1 already")
    assert answer(made, msgspec.structs.replace(good, node=77)) == (WELCOME, ""), "it was killed, and is back"
    assert answer(door()[0], msgspec.structs.replace(good, agent=2))[1] == "there is no agent 2 in a federation of 2"


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test moves."""
    made = SimpleNamespace(now=0.0, time=time.time)
    made.monotonic = lambda: made.now
    monkeypatch.setattr(greeting, "time", made)
    monkeypatch.setattr(web, "time", made)
    return made


def test_a_refusal_that_goes_on_is_noted_less_and_less_often(clock):
    made, lines = door()
    for _ in range(1800):  # an hour of somebody who tries every two seconds
        answer(made, Greeting(0, "old", "", 0.0, ""))
        clock.now += 2.0
    assert len(lines) == 11, "after 10, 20, 40, ... and then every 600 seconds"
    for _ in range(5):  # an operator who tries something once a minute
        clock.now += 700.0
        answer(made, Greeting(0, "old", "", 0.0, ""))
    assert len(lines) == 16


def test_refusals_without_end_do_not_fill_the_disk_nor_hide_what_comes_later(clock):
    made, lines = door()
    for number in range(3 * MAX_REFUSALS):
        made.refuse(None, "".join(chr(ord("a") + int(digit)) for digit in str(number)))
    assert len(lines) == MAX_REFUSALS
    clock.now += greeting.REFILL
    answer(made, Greeting(0, "old", "", 0.0, ""))
    assert "it has fedpg old" in lines[-1][1]


def test_three_thousand_fuzzed_greetings_get_a_line_and_change_nothing(monkeypatch):
    monkeypatch.setattr(greeting, "PAUSE", 0.0)
    made, lines = door()
    good = msgspec.json.encode(my_greeting(0, cartpole.ENVIRONMENT, None))
    rng = np.random.default_rng(1)
    for number in range(3000):
        damaged, place = bytearray(good), int(rng.integers(len(good)))
        damaged[place : place + int(rng.integers(20))] = rng.bytes(int(rng.integers(20)))
        code, line = made.answer(bytes(damaged), "host")
        assert code in (WELCOME, REFUSED), number
        assert line.isprintable()
    assert all(line.isprintable() for _, line in lines)


def test_tls_that_does_not_fit_is_said_on_both_sides(keys):
    made, lines = door()
    good = my_greeting(0, cartpole.ENVIRONMENT, None)
    proxy = Proxy("127.0.0.1", 0, 9, keys / "ours", made)
    try:
        server = f"127.0.0.1:{proxy.port}"
        assert greet(server, good, keys / "ours") == (WELCOME, "")
        with pytest.raises(UserError, match="is this the right server, and the right ca"):
            greet(server, good, keys / "theirs")
        with pytest.raises(UserError, match="speaks TLS: give --keys FOLDER"):
            greet(server, good, None)
    finally:
        proxy.stop()
    assert greet(server, good, None)[0] == 0, "nobody is there any more"
    proxy = Proxy("127.0.0.1", 0, 9, None, made)
    try:
        with pytest.raises(UserError, match="does not speak TLS: its server runs with --insecure"):
            greet(f"127.0.0.1:{proxy.port}", good, keys / "ours")
        with pytest.raises(UserError, match="the server refuses this agent: it has fedpg old"):
            greet(f"127.0.0.1:{proxy.port}", msgspec.structs.replace(good, fedpg="old"), None)
    finally:
        proxy.stop()
    text = " ".join(line for _, line in lines)
    for why in ("needs the ca.crt of this federation", "does not speak TLS", "a caller speaks TLS"):
        assert why in text

"""Ten thousand damaged greetings, calls and status requests while a federation runs: it ends as if nothing had been sent."""

from __future__ import annotations

import contextlib
import socket
import time

import msgspec
import numpy as np
import pytest

from fedpg.envs.families import family
from fedpg.flower.greeting import PATH, my_greeting
from fedpg.flower.processes import free_port
from helpers.real import federation
from helpers.rounds import SERVER, error, part, saved, simulated

COUNT = 10_000


def damaged(rng: np.random.Generator, data: bytes) -> bytes:
    place = int(rng.integers(len(data)))
    out = bytearray(data)
    out[place : place + int(rng.integers(30))] = rng.bytes(int(rng.integers(30)))
    return bytes(out)


def send(port: int, data: bytes) -> None:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 2.0) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(2.0)
        connection.recv(4096)


@pytest.mark.federation
def test_ten_thousand_damaged_requests_change_nothing(tmp_path):
    rng, page = np.random.default_rng(7), free_port()
    kind = family("random-mdp")
    greeting = msgspec.json.encode(my_greeting(0, kind.environment(kind.options()), None))
    with federation(tmp_path, ("--status", f"127.0.0.1:{page}"), agents=2, rounds=4, algorithm="scaffold") as real:
        real.serve()
        port = int(real.address.rpartition(":")[2])
        real.wait_until(lambda: real.status().get("phase") == "waiting")
        real.join(0)
        real.join(1)
        head = f"HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(greeting)}\r\n\r\n".encode()
        requests = (
            (port, f"POST {PATH} ".encode() + head + greeting),
            (port, b"POST /v1/fleet/activate-node " + head + greeting),
            (port, b"POST /v1/fleet/push-messages " + head + greeting),
            (page, b"GET /status.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
        )
        for number in range(COUNT):
            where, request = requests[number % len(requests)]
            send(where, damaged(rng, request))
            if number % 100 == 0:
                assert real.processes["serve"].poll() in (None, 0)
                time.sleep(0.01)
        real.finish()
    assert "Traceback" not in real.log("serve")
    assert not (real.out / "federation" / "server.log").exists()
    assert [row["round"] for row in real.lines("metrics.jsonl")] == [0, 4]
    assert not any(real.missed(agent) for agent in range(2))
    round, arrays = saved(real)
    assert error(part(arrays, SERVER), part(simulated(real.config)[round], SERVER)) < 1e-5

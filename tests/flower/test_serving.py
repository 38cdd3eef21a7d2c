"""The server's process, without a SuperLink: what ends it is one line."""

from __future__ import annotations

import errno
import json

import pytest

pytest.importorskip("flwr")

from fedpg.errors import UserError
from fedpg.flower import serving
from fedpg.flower.processes import RUNNING, free_port
from fedpg.flower.server import Rules
from fedpg.flower.serving import Serving, Work
from fedpg.runs.config import Config
from fedpg.runs.folder import RunFolder


@pytest.fixture
def server(tmp_path):
    config = Config(env="random-mdp", algorithm="pavg", agents=2, rounds=1)
    with Serving(config, RunFolder(tmp_path / "run"), f"127.0.0.1:{free_port()}", None, Rules(), False) as made:
        yield made
    assert not (tmp_path / "run" / "federation" / RUNNING).exists()


def test_a_disk_that_is_full_is_said_in_one_line(server, monkeypatch):
    def fail(again):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(server, "_start", fail)
    with pytest.raises(UserError, match=r"the disk of .*run is full: make room, then --resume"):
        server.run()
    status = json.loads(server.status.read_text())
    assert (status["phase"], "make room" in status["state"]) == ("failed", True)
    assert not (server.status.parent / "server.log").exists()


def test_a_superlink_that_does_not_answer_is_told_once(server, monkeypatch):
    monkeypatch.setattr(serving, "STANDSTILL_SECONDS", 0.2)

    class Run:
        asked = serving.time.monotonic()

    def watch():
        server._watch(Run)

    def wait():
        serving.time.sleep(1.0)
        Run.asked = None
        serving.time.sleep(0.5)

    Work(wait, lambda seconds: None, watch).wait()
    (event,) = server._events.take()
    assert event["what"].startswith("no answer from the SuperLink for 0.2 s")

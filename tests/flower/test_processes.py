"""Processes that are left behind: ours are found by number, start time and boot, and no other is ever touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from fedpg.flower.processes import RUNNING, Child, Running, identity, with_parent, write_secret

SLEEP = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]


@pytest.fixture
def sleeper():
    with subprocess.Popen(SLEEP, start_new_session=True) as process:
        yield process
        process.kill()


def test_a_process_that_was_left_behind_is_ended(tmp_path, sleeper):
    (tmp_path / RUNNING).write_text(json.dumps({"superlink": identity(sleeper.pid), "fedpg": [2**22, "1", "x"]}))
    found = Running(tmp_path)
    assert (found.killed, found.ended) == (True, ["superlink"])
    assert sleeper.wait(5) == -signal.SIGTERM
    assert json.loads((tmp_path / RUNNING).read_text()) == {"fedpg": identity(os.getpid())}
    found.clear()
    again = Running(tmp_path)
    assert (again.killed, again.ended) == (False, [])


def test_a_process_that_ignores_a_polite_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("fedpg.flower.processes.STOP_SECONDS", 0.3)
    deaf = [sys.executable, "-I", "-S", "-c", "import signal, time; signal.signal(15, 1); print(flush=True); time.sleep(60)"]
    with subprocess.Popen(deaf, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        (tmp_path / RUNNING).write_text(json.dumps({"supernode": identity(process.pid)}))
        assert Running(tmp_path).ended == ["supernode"]
        assert process.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize("change", [(1, "12345"), (2, "another boot"), (0, "text")], ids=["started", "boot", "number"])
def test_another_process_with_the_same_number_is_not_touched(tmp_path, sleeper, change):
    who = identity(sleeper.pid)
    who[change[0]] = change[1]
    (tmp_path / RUNNING).write_text(json.dumps({"superlink": who, "odd": 7, "none": None}))
    assert Running(tmp_path).ended == []
    assert sleeper.poll() is None


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_record_stops_nothing(tmp_path, damage):
    (tmp_path / RUNNING).write_bytes(damage)
    assert Running(tmp_path).ended == []


def test_a_child_is_recorded_and_what_it_prints_is_read_once(tmp_path):
    running = Running(tmp_path)
    child = Child([sys.executable, "-I", "-S", "-c", "print('hello', flush=True); input()"], tmp_path / "supernode.log", tmp_path, running)
    end = time.monotonic() + 10
    while "hello" not in child.printed() and time.monotonic() < end:
        time.sleep(0.02)
    assert set(json.loads((tmp_path / RUNNING).read_text())) == {"fedpg", "supernode"}
    assert child.news() == child.printed()
    child.stop()
    assert child.code() is not None


def test_a_child_ends_when_its_parent_is_killed():
    code = f"import subprocess, sys; p = subprocess.Popen({with_parent(SLEEP, signal.SIGKILL)!r}); print(p.pid, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        time.sleep(0.5)  # until it has become the command
        parent.kill()
    end = time.monotonic() + 5
    while identity(child) and time.monotonic() < end:
        time.sleep(0.02)
    assert identity(child) is None


def test_a_secret_is_its_owners(tmp_path):
    assert len(write_secret(tmp_path / "secret")) == 32
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600

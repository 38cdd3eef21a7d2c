"""The file of the status: written seldom, whole at every moment, and a run does not depend on it."""

from __future__ import annotations

import dataclasses
import errno
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fedpg.flower import status_file
from fedpg.flower.status import Board, read
from fedpg.runs.config import Config

CONFIG = Config(env="cartpole", algorithm="pavg", agents=4, rounds=10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "federation" / "status.json"


def test_writes_are_few_and_the_last_change_is_written(path, monkeypatch):
    written = []
    monkeypatch.setattr(status_file, "write", lambda path, status: written.append(status))
    board = Board(path, CONFIG, every=0.1)
    began = time.monotonic()
    told = 0
    while time.monotonic() - began < 0.35:
        board.asked(0, "training", [0], 1)
        told += 1
    time.sleep(0.25)
    assert 3 <= len(written) <= (time.monotonic() - began) / 0.1 + 2
    assert written[-1].bytes_sent == told > 100


def test_a_process_that_ends_writes_its_last_change(path):
    code = "import pathlib, sys; from fedpg.flower.status import Board; from fedpg.runs.config import Config\n"
    code += "b = Board(pathlib.Path(sys.argv[1]), Config(), every=0.3); b.advanced(1); b.advanced(7)"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)
    assert read(path).round == 7


def test_a_disk_that_cannot_be_written_stops_nothing(path, tmp_path, monkeypatch):
    board = Board(path, CONFIG, every=0)
    board.advanced(1)

    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        board.advanced(2)
        board.failed("disk full")
    assert read(path).round == 1
    assert list(path.parent.iterdir()) == [path]
    board.advanced(3)
    assert read(path).round == 3
    (tmp_path / "file").write_text("")
    nowhere = Board(tmp_path / "file" / "status.json", CONFIG, every=0)
    nowhere.finished()


def test_whatever_is_in_the_file_reading_does_not_fail(path):
    assert read(path) is None
    board = Board(path, CONFIG, every=0)
    board.evaluated({"round": 0, "return": 1.0, "return_worst": None, "env_steps": 8.0, "floats_up": 6.0, "floats_down": 3.0})
    board.happened({"round": 0, "during": "training", "seed": 0, "agent": 1, "what": "odd"})
    whole = path.read_bytes()
    assert read(path) == dataclasses.replace(board._status, agents=tuple(board._agents))
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert read(path) is None
    good = json.loads(whole)
    wrong = [
        {"round": "1"},
        {"round": True},
        {"changed": "now"},
        {"agents": {}},
        {"agents": [1]},
        {"metrics": []},
        {"more": 1},
        {"state": None},
    ]
    wrong += [{"agents": [{**good["agents"][0], "seen": float("nan")}]}, {"events": [{**good["events"][0], "agent": "<b>"}]}]
    for change in wrong:
        path.write_text(json.dumps(good | change))
        assert read(path) is None, change
    path.write_bytes(b"\xff" * 9)
    assert read(path) is None
    path.write_text("[" * 100_000)
    assert read(path) is None


def test_readers_see_whole_states_while_many_threads_tell(path):
    board, seen, each = Board(path, CONFIG, every=0), [], 150
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads interrupt each other as often as they can

    def tell() -> None:
        for _ in range(each):
            board.heard(1, 0.1, 5, "")

    threads = [threading.Thread(target=tell) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            seen.append(read(path))
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert None not in seen
    assert len({status.bytes_received for status in seen}) > 5
    assert all(5 * status.agents[1].accepted == status.bytes_received for status in seen)
    assert read(path).agents[1].accepted == 4 * each

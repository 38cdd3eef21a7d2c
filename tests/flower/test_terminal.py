"""The status on a terminal, and as lines where there is none."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from fedpg.flower.snapshot import Agent, Event, Status
from fedpg.flower.status_file import write
from fedpg.flower.telling import MOST_TOLD, Teller
from rich.console import Console

from fedpg.flower import terminal
from fedpg.flower.status import Board
from fedpg.runs.config import Config

CONFIG = Config(env="cartpole", algorithm="pavg", agents=3, rounds=10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "status.json"


def row(round: int, value: float) -> dict:
    return {"round": round, "return": value, "return_worst": value / 2, "env_steps": 1e6, "floats_up": 2e6, "floats_down": 3e6}


def event(agent: int | None, what: str, round: int = 0) -> dict:
    return {"round": round, "during": "training", "seed": 0, "agent": agent, "what": what}


def console(width: int = 120, terminal: bool = False, **more) -> Console:
    return Console(file=io.StringIO(), width=width, height=40, force_terminal=terminal, color_system=None, **more)


def drawn(status: Status, now: float = 1000.0, width: int = 120, **more) -> list[str]:
    where = console(width)
    where.print(terminal.draw(status, now, width=width, **more))
    return [line.rstrip() for line in where.file.getvalue().splitlines()]


def a_board(path: Path) -> Board:
    """Agent 0 is well, agent 1's last answer was refused, agent 2 is not there; two evaluations."""
    board = Board(path, CONFIG, every=0)
    board.evaluated(row(0, 1.0))
    board.asked(3, "training", [0, 1], 5000)
    board.heard(0, 1.5, 700, "")
    board.heard(1, 2.5, 600, "a norm of [bold]1e+30[/bold]")
    board.happened(event(1, "refused: a norm of [bold]1e+30[/bold]", 3))
    board.evaluated(row(4, 8.0))
    return board


def test_a_picture_of_a_running_federation(path):
    a_board(path)
    lines = drawn(terminal.read(path), time.time())
    assert lines[0] == "pavg on cartpole  round 4 of 10: 2 of 2 have answered"
    assert lines[1].endswith("3 of 10 rounds")
    assert lines[2] == "return 8.00, worst agent 4.00 after round 4  ▁█"
    assert lines[3] == "1 M env steps; numbers up 2 M, down 3 M; 1.3 kB up, 5 kB down"
    assert lines[4] == "2 of 3 agents are there"
    cells = [line.split() for line in lines[6:9]]
    assert cells[0] == ["0", "present", "now", "1", "0", "0", "1.5", "s"]
    assert cells[1][:8] == ["1", "refused", "now", "0", "1", "0", "2.5", "s"]
    assert lines[7].endswith("a norm of [bold]1e+30[/bold]")
    assert cells[2] == ["2", "not", "here", "yet", "never", "0", "0", "0"]
    assert lines[9] == "now, round 4: agent 1: refused: a norm of [bold]1e+30[/bold]"


@pytest.mark.parametrize("width", [60, 80, 100])
def test_it_fits(path, width):
    a_board(path)
    lines = drawn(terminal.read(path), time.time(), width)
    assert max(map(len, lines)) <= width
    table = [line.split() for line in lines if line.split()[:2] in (["0", "present"], ["1", "refused"], ["2", "not"])]
    assert [cells[0] for cells in table] == ["0", "1", "2"]
    assert any("a norm" in line for line in lines[:-1]) == (width >= terminal.ROOM_FOR_PROBLEMS)


def test_of_many_agents_those_in_trouble_are_shown():
    agents = [Agent(number, True, 999.0, outcome="accepted") for number in range(100)]
    agents[50], agents[70] = Agent(50, True, 999.0, outcome="missed"), Agent(70, False, 1.0)
    lines = drawn(Status("pavg", "cartpole", "training", "round 1", 0, 10, tuple(agents)), most_agents=5)
    assert [line.split()[:2] for line in lines[4:9]] == [
        [str(n), w] for n, w in ((0, "present"), (1, "present"), (2, "present"), (50, "no"), (70, "absent"))
    ]
    assert lines[9] == "and 95 more, 0 of them absent, refused or silent"


def test_before_anything_is_known():
    assert drawn(Status()) == ["federation  starting"]


def test_ascii_only(path):
    a_board(path)
    assert all(line.isascii() for line in drawn(terminal.read(path), plain=True)[2:])


def test_lines_for_what_matters(path):
    board, teller = Board(path, CONFIG, every=0), Teller()

    def told() -> list[str]:
        return teller.lines(terminal.read(path))

    assert told() == []
    board.waiting(0, "warm-up", {0, 2}, 3)
    assert told() == ["here: agents 0, 2 (2 of 3 are there)", "waiting for agents: 2 of at least 3 are there"]
    board.waiting(0, "warm-up", {0, 2}, 3)
    assert told() == []
    board.asked(0, "training", [0, 1, 2], 10)
    assert told() == ["here: agent 1 (3 of 3 are there)"]
    board.evaluated(row(0, 10.0))
    board.evaluated(row(1, 20.0))
    assert told() == ["round 0: return 10.0, worst agent 5.00", "round 1: return 20.0, worst agent 10.0"]
    board.asked(1, "training", [0, 1], 10)
    for _ in range(2):
        board.happened(event(1, "refused: [red]odd", 1))
        board.happened(event(2, "absent", 1))
    assert told() == ["gone: agent 2 (2 of 3 are there)", "round 2: agent 1: refused: [red]odd (2 times) (events.jsonl has all)"]
    board.happened(event(1, "refused: [red]odd", 2))
    board.happened(event(None, "1 of 3 agents are there: waiting for the others", 2))
    board.advanced(10)
    assert told() == []
    board.finished()
    assert told() == ["finished: all 10 rounds are done"]
    board.failed("no room")
    assert told() == ["failed: no room"]


def test_not_more_lines_of_mishaps_than_a_person_reads():
    teller, found = Teller(), []
    for number in range(1, 100):
        found += teller.lines(Status(events=(Event(number, 0.0, number, "training", None, f"mishap {chr(0x4E00 + number)}"),)))
    assert len(found) == MOST_TOLD


def test_live_without_a_terminal_prints_lines(path):
    where = console()
    with terminal.Live(where, path):
        board = a_board(path)
        board.advanced(10)
        board.finished()
    lines = where.file.getvalue().splitlines()
    assert lines[0] == "here: agents 0, 1 (2 of 3 are there)"
    assert "round 4: agent 1: refused: a norm of [bold]1e+30[/bold] (events.jsonl has all)" in lines
    assert lines[-1] == "finished: all 10 rounds are done"


def test_live_on_a_terminal_follows_the_file_and_leaves_the_last_picture(path):
    where = console(terminal=True)
    with terminal.Live(where, path):
        board = a_board(path)
        end = time.monotonic() + 10
        while "round 4 of 10: 2 of 2 have answered" not in where.file.getvalue():
            assert time.monotonic() < end
            time.sleep(0.05)
        path.write_text("{")  # whatever happens to it
        time.sleep(0.3)
        board.failed("no room")
    last = where.file.getvalue().rpartition("pavg on cartpole")[2]
    assert "failed: no room" in last
    assert "2 of 3 agents are there" in last


def test_an_error_passes_through(path):
    write(path, Status())
    with pytest.raises(ValueError, match="mine"), terminal.Live(console(), path):
        raise ValueError("mine")

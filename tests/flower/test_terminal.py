"""The status on a terminal, and as lines where there is none."""

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from fedpg.flower.status import Event, Status, StatusWriter, read_status
from fedpg.flower.terminal import MAX_EVENTS, StatusLines, StatusView
from fedpg.runs.config import Config

CONFIG = Config(env="cartpole", algorithm="pavg", agents=3, rounds=10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "status.json"


def row(round: int, value: float) -> dict:
    return {"round": round, "return": value, "return_worst": value / 2, "env_steps": 1e6, "floats_up": 2e6, "floats_down": 3e6}


def event(agent: int | None, what: str, round: int = 0) -> dict:
    return {"round": round, "during": "training", "seed": 0, "agent": agent, "what": what}


def console(terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=120, height=40, force_terminal=terminal, color_system=None)


def a_writer(path: Path) -> StatusWriter:
    """Agent 0 is well, agent 1's last answer was refused, agent 2 is not there; two evaluations."""
    writer = StatusWriter(path, CONFIG)
    writer.evaluated(row(0, 1.0))
    writer.asked(3, "training", [0, 1], 5000)
    writer.answered(0, 1.5, 700, "")
    writer.answered(1, 2.5, 600, "a norm of [bold]1e+30[/bold]")
    writer.happened(event(1, "refused: a norm of [bold]1e+30[/bold]", 3))
    writer.evaluated(row(4, 8.0))
    return writer


def test_lines_for_what_matters(path):
    writer, lines = StatusWriter(path, CONFIG), StatusLines()

    def told() -> list[str]:
        return lines.new(read_status(path))

    assert told() == []
    line = "waiting for agent 1 since 14:03:10"
    writer.waiting(0, {0, 2}, line)
    writer.happened(event(None, line, 0))
    assert told() == ["here: agents 0, 2 (2 of 3 are there)", line]
    writer.waiting(0, {0, 2}, line)
    assert told() == []
    writer.asked(0, "training", [0, 1, 2], 10)
    assert told() == ["here: agent 1 (3 of 3 are there)"]
    writer.evaluated(row(0, 10.0))
    writer.evaluated(row(1, 1234.56))
    assert told() == ["round 0: return 10, worst agent 5", "round 1: return 1234.6, worst agent 617.28"]
    writer.asked(1, "training", [0, 1], 10)
    for _ in range(2):
        writer.happened(event(1, "refused: [red]odd", 1))
        writer.happened(event(2, "absent", 1))
    assert told() == ["gone: agent 2 (2 of 3 are there)", "round 2: agent 1: refused: [red]odd (events.jsonl has all)"]
    writer.happened(event(1, "refused: [red]odd", 2))
    writer.advanced(10)
    assert told() == []
    writer.happened(event(None, "waiting for agent 0 since 14:09:00", 2))
    assert told() == ["round 3: waiting for agent 0 since 14:09:00 (events.jsonl has all)"]
    writer.finished()
    assert told() == ["finished: all 10 rounds are done"]
    writer.failed("no room")
    assert told() == ["failed: no room"]


def test_not_more_lines_of_events_than_a_person_reads():
    lines, found = StatusLines(), []
    for number in range(1, 100):
        found += lines.new(Status(events=[Event(number, 0.0, "round 1", None, f"mishap {chr(0x4E00 + number)}")]))
    assert len(found) == MAX_EVENTS
    assert lines.new(Status(events=[Event(100, 0.0, "round 1", 2, "mishap")])), "one agent's do not hide another's"


def test_every_refusal_gets_a_line():
    lines, what = StatusLines(), "refused (a caller from 192.0.2.1): unknown key"
    for number in range(1, 100):
        status = Status(events=[Event(number, 0.0, "greeting", 1, what)])
        assert lines.new(status) == [f"greeting: agent 1: {what} (events.jsonl has all)"], number
        assert lines.new(status) == []


@pytest.mark.parametrize("terminal", [False, True])
def test_lines_are_printed_while_it_runs(path, terminal):
    where = console(terminal)
    with StatusView(where, path):
        writer = a_writer(path)
        end = time.monotonic() + 10
        while terminal and "round 4 of 10: 2 of 2 have answered" not in where.file.getvalue():
            assert time.monotonic() < end
            time.sleep(0.05)
        path.write_text("{")  # a file that cannot be read changes nothing
        time.sleep(0.3)
        writer.advanced(10)
        writer.finished()
    text = where.file.getvalue()
    for line in (
        "here: agents 0, 1 (2 of 3 are there)",
        "round 4: return 8, worst agent 4",
        "round 4: agent 1: refused: a norm of [bold]1e+30[/bold] (events.jsonl has all)",
        "finished: all 10 rounds are done",
    ):
        assert line in text
    assert "gone" not in text
    assert ("round 10 of 10: 2 of 2 agents in " in text) == (not terminal), "a terminal has a bar instead"
    if not terminal:
        assert text.splitlines()[0] == "here: agents 0, 1 (2 of 3 are there)"
        assert text.splitlines()[-1] == "finished: all 10 rounds are done"


def test_an_error_passes_through(path):
    with pytest.raises(ValueError, match="mine"), StatusView(console(), path):
        raise ValueError("mine")

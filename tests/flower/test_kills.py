"""Every process of a federation is killed, or stopped for a while, in every place of a run: the run ends as if nothing had happened.

One run per process and signal; in it the fault happens in one place after the other. All agents must take part in every round, so the
result must equal the simulator's. Writes docs/data/kills.json and, from it, the table of docs/explanation/federation.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedpg.flower.processes import identity
from fedpg.flower.serving import KILLED
from helpers.real import Real, federation, named
from helpers.rounds import SERVER, error, part, saved, simulated

pytestmark = pytest.mark.federation
DOCS = Path(__file__).parents[2] / "docs"
DATA, PAGE = DOCS / "data" / "kills.json", DOCS / "explanation" / "federation.md"
ROUNDS, STOPPED, AGENTS = 9, 30.0, 2


def state(pattern: str) -> Callable[[dict[str, Any]], bool]:
    return lambda status: bool(re.match(pattern, status.get("state", "")))


PLACES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "start": state("starting"),
    "waiting for agents": state("waiting for"),
    "warm-up begins": state("warm-up: 0 of"),
    "warm-up, one has answered": state("warm-up: [12] of"),
    "evaluation begins": state("evaluating: 0 of"),
    "evaluation, one has answered": state("evaluating: [12] of"),
    "round begins": state(r"round \d+ of \d+: 0 of"),
    "round, one has answered": state(r"round \d+ of \d+: 1 of"),
    "aggregation": state(rf"round \d+ of \d+: {AGENTS} of"),
    "checkpoint": lambda status: status.get("last_round", "").startswith(f"round {max(status['round'], 1)} of"),
    "last evaluation begins": lambda status: status.get("round") == ROUNDS and state("evaluating: 0 of")(status),
    "shutdown": lambda status: status.get("round") == ROUNDS and state(f"evaluating: {AGENTS} of")(status),
}
EARLY = tuple(PLACES)[:4]
"""Places that a run passes once."""


def processes(real: Real, which: str) -> list[int]:
    """The processes of a kind; the first is the one to hit."""
    if which == "server":
        return [real.processes["serve"].pid]
    if which == "agent":
        return [real.processes["join-1"].pid]
    return named(real.processes["serve" if which == "SuperLink" else "join-1"].pid, f"flower-{which.lower()}")


def fault(real: Real, which: str, number: int) -> bool:
    """Kills a process, or stops it for a while, and gives the documented next command; False if it does not run."""
    found = processes(real, which)
    if not found or identity(found[0]) is None:
        return False
    os.kill(found[0], number)
    if number == signal.SIGSTOP:
        time.sleep(STOPPED)
        os.kill(found[0], signal.SIGCONT)
    elif which == "server":
        real.processes["serve"].wait()
        real.serve("--resume")
    elif which == "agent":
        real.processes["join-1"].wait()
        real.join(1)
    return True


def reached(real: Real, place: str, seconds: float) -> bool:
    """Waits for a place; False if the run has ended or does not come there."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and real.processes["serve"].poll() is None:
        remembered = (real.out / "federation" / "config.toml").exists()  # from here on there is a run to resume
        if remembered and (status := real.status()):
            if PLACES[place](status):
                return True
            if place in EARLY and (status["round"] > 0 or state("evaluating|round")(status)):
                return False
        time.sleep(0.02)
    return False


def begin(real: Real) -> None:
    real.serve()
    for agent in range(AGENTS):
        real.join(agent)


def check(real: Real) -> None:
    """All rounds once, all agents in each, the simulator's result, and nothing left behind."""
    rows = real.lines("metrics.jsonl")
    expected = sorted({*range(0, ROUNDS, real.config.eval_every), ROUNDS})
    assert [row["round"] for row in rows] == expected, "no gap and no duplicate"
    round, arrays = saved(real)
    assert round == ROUNDS
    assert error(part(arrays, SERVER), part(simulated(real.config)[ROUNDS], SERVER)) < 1e-5
    assert not (real.out / "federation" / "running.json").exists()


def record(column: str, cells: dict[str, Any]) -> None:
    """Adds a column to the data and draws the table."""
    data = json.loads(DATA.read_text()) if DATA.exists() else {}
    data[column] = data.get(column, {}) | cells
    DATA.write_text(json.dumps(data, indent=1) + "\n")
    lines = [f"| when | {' | '.join(data)} |", "|---" * (len(data) + 1) + "|"]
    lines += [f"| {place} | {' | '.join(str(cells.get(place, '')) for cells in data.values())} |" for place in (*PLACES, "at random")]
    text = PAGE.read_text()
    table = "<!-- kills -->\n\n" + "\n".join(lines) + "\n\n<!-- end -->"
    PAGE.write_text(re.sub(r"<!-- kills -->.*<!-- end -->", lambda _: table, text, flags=re.DOTALL))


@pytest.mark.parametrize("kind", ["-9", "-STOP"])
@pytest.mark.parametrize("which", ["server", "SuperLink", "agent", "SuperNode"])
def test_a_fault_in_every_place(tmp_path, which, kind):
    number = signal.SIGKILL if kind == "-9" else signal.SIGSTOP
    cells: dict[str, Any] = {}
    flags = ("--quorum", str(AGENTS))
    with federation(tmp_path, flags, rounds=ROUNDS, agents=AGENTS, algorithm="fedsvrpg-m", eval_every=3) as real:
        begin(real)
        began, before = time.monotonic(), ""
        for place in PLACES:
            if not reached(real, place, 240.0):
                continue
            if before:
                cells[before] = f"{time.monotonic() - began:.0f} s"
            began, before = time.monotonic(), place if fault(real, which, number) else ""
        real.finish(400.0)
        if before:
            cells[before] = f"{time.monotonic() - began:.0f} s"
        assert len(cells) >= 6, cells
        words = [event["what"] for event in real.events()]
        if number == signal.SIGKILL:
            said = {"server": KILLED, "SuperLink": "the SuperLink ended with code -9", "agent": "", "SuperNode": ""}[which]
            assert any(said in what for what in words)
    check(real)
    record(f"{which} {kind}", cells)


def test_kills_at_random_moments(tmp_path):
    """FEDPG_KILLS says how many; every process that can be killed, at any moment."""
    count, dice, done = int(os.environ.get("FEDPG_KILLS", "12")), random.Random(1), dict[str, int]()
    with federation(tmp_path, ("--quorum", str(AGENTS)), rounds=ROUNDS, agents=AGENTS, algorithm="scaffold", eval_every=3) as real:
        begin(real)
        while sum(done.values()) < count and real.processes["serve"].poll() is None and real.round() < ROUNDS:
            time.sleep(dice.uniform(0.0, 20.0))
            which = dice.choice(["server", "server", "SuperLink", "agent"])
            with contextlib.suppress(ProcessLookupError):
                if real.processes["serve"].poll() is None and fault(real, which, signal.SIGKILL):
                    done[which] = done.get(which, 0) + 1
        real.finish(400.0)
    check(real)
    for which, number in done.items():
        record(f"{which} -9", {"at random": f"{number} times"})

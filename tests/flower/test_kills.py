"""Every process of a federation is killed, or stopped for a while, in every place of a run: the run ends as if nothing had happened.

One run per process and signal; in it the fault happens in one place after the other, and a second run has the places that the first
passed too quickly. All agents must take part in every round, so the result must equal the simulator's. Writes docs/data/kills.json and,
from it, the table of docs/explanation/federation.md.
"""

from __future__ import annotations

import contextlib
import fcntl
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

from fedpg.flower.processes import RUNNING, identity
from fedpg.flower.serving import KILLED
from helpers.real import PATIENCE, Real, federation
from helpers.rounds import SERVER, error, part, saved, simulated

pytestmark = pytest.mark.federation
DOCS = Path(__file__).parents[2] / "docs"
DATA, PAGE = DOCS / "data" / "kills.json", DOCS / "explanation" / "federation.md"
ROUNDS, STOPPED, AGENTS, LOOK, RUNS = 9, 30.0, 2, 0.002, 4
RANDOM = "at random"


def state(pattern: str) -> Callable[[dict[str, Any]], bool]:
    return lambda status: bool(re.match(pattern, status["state"]))


def answered(status: dict[str, Any], round: int) -> bool:
    """Whether all have answered in a round, which is (0) or is not (1) done."""
    found = re.match(rf"round (\d+) of \d+: {AGENTS} of", status["state"])
    return bool(found) and int(found[1]) - status["round"] == round


PLACES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "start": state("starting"),
    "waiting for agents": state("waiting for"),
    "warm-up begins": state("warm-up: 0 of"),
    "warm-up, one has answered": state("warm-up: 1 of"),
    "evaluation begins": state("evaluating: 0 of"),
    "evaluation, one has answered": state("evaluating: 1 of"),
    "round begins": state(r"round \d+ of \d+: 0 of"),
    "round, one has answered": state(r"round \d+ of \d+: 1 of"),
    "aggregation": lambda status: answered(status, 1),
    "checkpoint": lambda status: answered(status, 0),
    "last evaluation begins": lambda status: status["round"] == ROUNDS and state("evaluating: 0 of")(status),
    "shutdown": lambda status: status["round"] == ROUNDS and state(f"evaluating: {AGENTS} of")(status),
}
EARLY = tuple(PLACES)[:4]
"""Places that a run passes once."""


def process(real: Real, which: str) -> int | None:
    """The process of a kind that a fault hits, if it runs."""
    if which == "SuperLink":
        try:
            who = json.loads((real.out / "federation" / RUNNING).read_bytes())["superlink"]
        except (OSError, KeyError):
            return None
        return who[0] if identity(who[0]) == who else None
    found = real.processes["serve" if which == "server" else "join-1"].pid
    return found if identity(found) else None


def fault(real: Real, which: str, target: int, number: int) -> None:
    """Kills a process, and gives the documented next command, or stops it for a while."""
    os.kill(target, number)
    if number == signal.SIGSTOP:
        time.sleep(STOPPED)
        os.kill(target, signal.SIGCONT)
    else:
        start_again(real, which)


def start_again(real: Real, which: str) -> None:
    """The documented next command after a process was killed; a SuperLink needs none."""
    if which == "server":
        real.processes["serve"].wait()
        real.serve("--resume")
    elif which == "agent":
        real.processes["join-1"].wait()
        real.join(1)


class Run:
    """A federation and the faults in it."""

    def __init__(self, real: Real, which: str) -> None:
        self.real, self.which, self.cells = real, which, dict[str, str]()
        self._seen, self._status, self._open = 0, dict[str, Any](), ("", 0.0, 0)

    def look(self) -> dict[str, Any]:
        """The status of the server; empty before there is a run to resume. Closes the cell of the last fault when an agent answers."""
        path = self.real.out / "federation" / "status.json"
        try:
            number = os.stat(path).st_ino  # every status is a new file
            if number != self._seen:
                self._seen, self._status = number, json.loads(path.read_bytes())
        except OSError:
            self._seen, self._status = 0, {}
        place, began, before = self._open
        if place and (self.accepted() > before or self.real.processes["serve"].poll() is not None):
            self.cells[place], self._open = f"{time.monotonic() - began:.0f} s", ("", 0.0, 0)
        return self._status if (self.real.out / "federation" / "config.toml").exists() else {}

    def accepted(self) -> int:
        return sum(agent["accepted"] for agent in self._status["agents"]) if self._status else 0

    def reached(self, place: str, seconds: float) -> int | None:
        """Waits for a place; the process to hit there, or None if the run does not come there any more."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.real.processes["serve"].poll() is None:
            if status := self.look():
                if PLACES[place](status) and (target := process(self.real, self.which)):
                    return target
                if place in EARLY and (status["round"] > 0 or state("evaluating|round")(status)):
                    return None
            time.sleep(LOOK)
        return None

    def hit(self, place: str, target: int, number: int) -> None:
        """The fault in a place. The last fault's cell is closed: nobody has answered since, but the run has come on."""
        if self._open[0]:
            self.cells[self._open[0]] = f"{time.monotonic() - self._open[1]:.0f} s"
        before = self.accepted()
        fault(self.real, self.which, target, number)
        self._open = place, time.monotonic(), before

    def finish(self) -> None:
        while self.real.processes["serve"].poll() is None and self._open[0]:
            self.look()
            time.sleep(0.1)
        self.real.finish()
        self.look()


def answers(real: Real) -> int:
    """The answers that the server has used so far."""
    return sum(agent["accepted"] for agent in real.status().get("agents", ()))


def begin(real: Real) -> None:
    real.serve()
    for agent in range(AGENTS):
        real.join(agent)


def check(real: Real, rounds: int = ROUNDS) -> None:
    """All rounds once, all agents in each, the simulator's result, and nothing left behind."""
    rows = real.lines("metrics.jsonl")
    expected = sorted({*range(0, rounds, real.config.eval_every), rounds})
    assert [row["round"] for row in rows] == expected, "no gap and no duplicate"
    round, arrays = saved(real)
    assert round == rounds
    assert error(part(arrays, SERVER), part(simulated(real.config)[rounds], SERVER)) < 1e-5
    assert not (real.out / "federation" / RUNNING).exists()


def record(column: str, cells: dict[str, Any]) -> None:
    """Adds a column to the data and draws the table."""
    with DATA.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # tests run side by side
        data = json.loads(DATA.read_text() or "{}")
        data[column] = data.get(column, {}) | cells
        data = dict(sorted(data.items(), key=lambda item: COLUMNS.index(item[0])))
        DATA.write_text(json.dumps(data, indent=1) + "\n")
        lines = [f"| when | {' | '.join(data)} |", "|---" * (len(data) + 1) + "|"]
        lines += [f"| {place} | {' | '.join(str(cells.get(place, '')) for cells in data.values())} |" for place in (*PLACES, RANDOM)]
        text = PAGE.read_text()
        table = "<!-- kills -->\n\n" + "\n".join(lines) + "\n\n<!-- end -->"
        PAGE.write_text(re.sub(r"<!-- kills -->.*?<!-- end -->", lambda _: table, text, flags=re.DOTALL))


COLUMNS = [f"{which} {kind}" for which in ("server", "SuperLink", "agent") for kind in ("-9", "-STOP")]
SAID = {
    "server -9": KILLED,
    "server -STOP": "the server stood still for",
    "SuperLink -9": "the SuperLink ended with code -9",
    "SuperLink -STOP": "no answer from the SuperLink for",
    "agent -9": "connected anew|has gone|waiting for agent 1 ",
    "agent -STOP": "no answer within|has gone|waiting for agent 1 ",
}
"""What events.jsonl says of the fault."""


def test_kills_at_random_moments(tmp_path):
    """A hundred over one run, of one process or of two at once; FEDPG_KILLS gives another number."""
    count, dice, done, rounds = int(os.environ.get("FEDPG_KILLS", "100")), random.Random(1), dict.fromkeys(COLUMNS[::2], 0), 80
    with federation(tmp_path, ("--quorum", str(AGENTS)), rounds=rounds, agents=AGENTS, algorithm="scaffold", eval_every=8) as real:
        begin(real)
        real.wait_until((real.out / "federation" / "config.toml").exists)  # from here on there is a run to resume
        while (number := sum(done.values())) < count:
            # Mostly at a random moment after an answer, otherwise while the run recovers from the last one. They cover the whole run.
            ahead = real.round() * count > rounds * number
            if dice.random() < 0.7 and not ahead:
                before = answers(real)
                real.wait_until(lambda before=before: answers(real) > before)
            time.sleep(dice.uniform(0.0, 1.0 if ahead else 4.0))
            kinds = ["server", "SuperLink", "agent"]
            both = dice.sample(kinds, 2) if dice.random() < 0.2 else [dice.choice(kinds)]
            targets = {which: target for which in both if (target := process(real, which))}
            for target in targets.values():
                with contextlib.suppress(ProcessLookupError):  # a SuperLink ends with its server
                    os.kill(target, signal.SIGKILL)
            for which in targets:
                done[f"{which} -9"] += 1
                start_again(real, which)
        real.finish()
    check(real, rounds)
    for column, number in done.items():
        record(column, {RANDOM: f"{number} times"})


@pytest.mark.parametrize("column", COLUMNS)
def test_a_fault_in_every_place(tmp_path, column):
    which, kind = column.split()
    number, cells, words = signal.SIGKILL if kind == "-9" else signal.SIGSTOP, dict[str, str](), set[str]()
    for attempt in range(RUNS):
        (folder := tmp_path / f"run-{attempt}").mkdir()
        with federation(folder, ("--quorum", str(AGENTS)), rounds=ROUNDS, agents=AGENTS, algorithm="fedsvrpg-m", eval_every=3) as real:
            begin(real)
            run = Run(real, which)
            for place in PLACES:
                if place not in cells and (target := run.reached(place, PATIENCE)):
                    run.hit(place, target, number)
            run.finish()
            cells |= run.cells
            words |= {event["what"] for event in real.events()}
        check(real)
        print(column, "attempt", attempt, run.cells)
        if len(cells) == len(PLACES):
            break
    assert [place for place in PLACES if place in cells] == list(PLACES), "a place was never reached"
    assert any(re.search(SAID[column], what) for what in words), words
    record(column, cells)

"""What the server of a federation knows of it, written down as it happens for whoever wants to look."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedpg.flower import snapshot
from fedpg.flower.snapshot import Agent, Event, Metrics, Point, Status
from fedpg.flower.status_file import Writer, read
from fedpg.flower.tasks import one_line
from fedpg.flower.wording import kind
from fedpg.runs.config import Config

__all__ = ["Board", "Status", "read"]

MOST_POINTS = 60
MOST_EVENTS = 20
LONGEST_REASON = 1000
ABSENT = "absent"
"""What the event of an agent that could not be asked says (`fedpg.flower.asking`)."""


class Board:
    """Keeps a file with the status of a federation; a `Watcher` (engines.asking) and a `Progress` (training.progress) in one.

    May be told things from any thread. Where the file cannot be written the run goes on all the same. Counts go on from those of
    an earlier process, if its file is there.

    Args:
        path: the file.
        config: what is run.
        rows: what metrics.jsonl holds already, for the curve of a run that is resumed.
        every: the fewest seconds between two writings.
    """

    def __init__(self, path: Path, config: Config, rows: Sequence[dict[str, Any]] = (), every: float = 0.2) -> None:
        self._everyone = config.participation == 1
        self._asked: dict[int, float] = {}  # who has the last task -> since when
        self._answered: dict[int, float] = {}  # whose answer has come -> after how many seconds
        self._during = ""
        before = read(path)
        if before is None or len(before.agents) != config.agents:
            before = Status(agents=tuple(Agent(number) for number in range(config.agents)), began=time.time())
        self._agents = [dataclasses.replace(agent, present=False, at_work=False) for agent in before.agents]
        kept = {name: getattr(before, name) for name in ("events", "bytes_sent", "bytes_received", "began")}
        self._status = Status(config.algorithm, config.env, rounds=config.rounds, **kept)
        for row in rows:
            self._add_point(row)
        self._file = Writer(path, every, lambda: dataclasses.replace(self._status, agents=tuple(self._agents)))
        self._change()

    # What engines.asking tells

    def waiting(self, round: int, during: str, present: set[int], needed: int) -> None:
        """Too few agents are there."""
        with self._file.lock:
            self._see(present, time.time())
            state = f"waiting for agents: {len(present)} of at least {needed} {'is' if len(present) == 1 else 'are'} there"
            self._change(phase=snapshot.WAITING, state=state, round=round)

    def asked(self, round: int, during: str, ids: list[int], sent: int) -> None:
        """The agents `ids` have been given a task, `sent` bytes in all."""
        with self._file.lock:
            self._during, self._answered, self._asked = during, {}, dict.fromkeys(ids, time.monotonic())
            everyone = self._everyone or during != "training"
            # Where all agents are wanted, those that were not asked are not there.
            self._see(set(ids) if everyone else {agent.number for agent in self._agents if agent.present} | set(ids))
            for agent in self._agents:
                self._mark(agent.number, at_work=agent.number in self._asked)
            self._go_on(round=round, bytes_sent=self._status.bytes_sent + sent)

    def arrived(self, agent: int) -> None:
        """An answer has come, and is read when all have: for links that can tell sooner than `heard` is called."""
        with self._file.lock:
            if agent in self._asked and agent not in self._answered:
                self._answered[agent] = time.monotonic() - self._asked[agent]
                self._mark(agent, at_work=False, present=True, seen=time.time(), seconds=self._answered[agent])
                self._go_on()

    def heard(self, agent: int, seconds: float, received: int, problem: str) -> None:
        """An agent's answer has been read, or its time is up; `problem` says why there is nothing that can be used."""
        with self._file.lock:
            if received and agent not in self._answered:
                self._answered[agent] = seconds
                self._mark(agent, present=True, seen=time.time(), seconds=seconds)
            outcome = snapshot.ACCEPTED if not problem else snapshot.REFUSED if received else snapshot.MISSED
            before = self._agents[agent]
            counted = {outcome: getattr(before, outcome) + 1}
            self._mark(agent, at_work=False, outcome=outcome, problem=one_line(problem) if problem else before.problem, **counted)
            self._go_on(bytes_received=self._status.bytes_received + received)

    # What training.loop tells

    @contextlib.contextmanager
    def running(self, config: Config, round: int) -> Iterator[None]:
        """The rounds begin, after `round` of them."""
        with self._file.lock:
            # A resumed run evaluates again what it had evaluated after its last checkpoint.
            curve = tuple(point for point in self._status.curve if point.round <= round)
            self._change(rounds=config.rounds, round=round, curve=curve)
        yield

    def advanced(self, round: int) -> None:
        """So many rounds are done."""
        with self._file.lock:
            self._change(round=round)

    def evaluated(self, row: dict[str, Any]) -> None:
        """A line of metrics.jsonl."""
        with self._file.lock:
            self._add_point(row)
            self._change()

    def happened(self, event: dict[str, Any]) -> None:
        """A line of events.jsonl. Where one of its kind is on the list, it takes its place and is counted."""
        with self._file.lock:
            agent, what, old = event["agent"], one_line(event["what"]), self._status.events
            if what == ABSENT and agent is not None:
                # It may have come, and have been asked, since.
                more = {} if agent in self._asked else {"present": False, "outcome": snapshot.MISSED, "problem": ABSENT}
                self._mark(agent, missed=self._agents[agent].missed + 1, **more)
            same = [known for known in old if known.agent == agent and kind(known.what) == kind(what)]
            number, count = max((known.number for known in old), default=0) + 1, 1 + sum(known.count for known in same)
            new = Event(number, time.time(), event["round"], event["during"], agent, what, count)
            self._change(events=(*(known for known in old if known not in same), new)[-MOST_EVENTS:])

    # What the ServerApp tells

    def finished(self) -> None:
        """The run has come to its end, or somebody has stopped it."""
        with self._file.lock:
            done, rounds = self._status.round, self._status.rounds
            if rounds is None or done >= rounds:
                self._end(snapshot.FINISHED, f"finished: all {done} rounds are done")
            else:
                self._end(snapshot.STOPPED, f"stopped after {done} of {rounds} rounds")

    def failed(self, reason: str) -> None:
        """The run has ended because of something."""
        with self._file.lock:
            line = "".join(c if c.isprintable() else " " for c in reason[:LONGEST_REASON])
            self._end(snapshot.FAILED, f"failed: {line}")

    def _end(self, phase: str, state: str) -> None:
        for agent in self._agents:
            self._mark(agent.number, at_work=False)
        self._change(phase=phase, state=state)
        self._file.now()

    def _go_on(self, **more: Any) -> None:
        """Says how far the exchange is."""
        round, rounds = more.get("round", self._status.round), self._status.rounds
        what = {"training": f"round {round + 1}" + ("" if rounds is None else f" of {rounds}"), "evaluation": "evaluating"}
        phase = snapshot.EVALUATING if self._during == "evaluation" else snapshot.TRAINING
        state = f"{what.get(self._during, self._during)}: {len(self._answered)} of {len(self._asked)} have answered"
        self._change(phase=phase, state=state, **more)

    def _add_point(self, row: dict[str, Any]) -> None:
        point = Point(row["round"], row["return"], row["return_worst"])
        costs = {name: float(row[name]) for name in ("env_steps", "floats_up", "floats_down")}
        metrics = Metrics(**vars(point), **costs, epsilon=row.get("epsilon"))
        points = (*(known for known in self._status.curve if known.round < point.round), point)
        if len(points) > MOST_POINTS:
            points = (*points[:-1:2], point)  # still the whole run, with fewer points: the first and the last stay
        self._status = dataclasses.replace(self._status, metrics=metrics, curve=points)

    def _see(self, present: set[int], now: float | None = None) -> None:
        """Who is there; with `now`, for certain at this moment."""
        for agent in self._agents:
            here = agent.number in present
            self._mark(agent.number, present=here, seen=(now or agent.seen or time.time()) if here else agent.seen)

    def _mark(self, agent: int, **more: Any) -> None:
        self._agents[agent] = dataclasses.replace(self._agents[agent], **more)

    def _change(self, **more: Any) -> None:
        self._status = dataclasses.replace(self._status, **more, changed=time.time())
        self._file.soon()

"""The status of a federation: one model, one small JSON file that the server keeps up to date, for terminal and web page to read."""

import contextlib
import math
import re
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from fedpg.errors import one_line
from fedpg.runs.config import Config
from fedpg.runs.progress import Progress
from fedpg.runs.training import MEMBERSHIP

STATUS_FILE = "status.json"
"""The file's name in the folder of the federation."""
MAX_POINTS = 60
MAX_EVENTS = 20
MAX_REASON = 1000
ABSENT = "absent"
"""The text of the event of an agent that could not be asked."""

Phase = Literal["starting", "waiting", "training", "evaluating", "finished", "stopped", "failed"]
AgentState = Literal["not here yet", "absent", "present", "at work", "refused", "no answer", "left"]
AWAY = ("not here yet", "absent", "left")
"""States of agents that cannot be asked. Those that left have done so for good."""


class AgentStatus(msgspec.Struct, forbid_unknown_fields=True):
    """What the server knows of one agent.

    Attributes:
        state: whether it is there, and what became of its last task.
        seen: UNIX time of the last sign of life; None if there never was one.
        accepted, refused, missed: its answers that were used, that were refused, and that did not come.
        problem: why an answer was last refused or missed.
        seconds: how long its last answer took.
    """

    number: int
    state: AgentState = "not here yet"
    seen: float | None = None
    accepted: int = 0
    refused: int = 0
    missed: int = 0
    problem: str = ""
    seconds: float | None = None

    @property
    def present(self) -> bool:
        """Whether it could be asked when the server last looked."""
        return self.state not in AWAY


class Point(msgspec.Struct, forbid_unknown_fields=True):
    """One evaluation: the rounds done, and the mean and the lowest return of the agents (None if they withhold it)."""

    round: int
    total_return: float | None
    return_worst: float | None


class Event(msgspec.Struct, forbid_unknown_fields=True):
    """Something that an operator may want to know, and how often it has happened.

    Attributes:
        number: grows with every event.
        when: UNIX time of the last one.
        place: where in the run, such as "round 12".
        agent: which agent it concerns; None for no particular one.
    """

    number: int
    when: float
    place: str
    agent: int | None
    what: str
    count: int = 1


class Status(msgspec.Struct, forbid_unknown_fields=True):
    """The status of a federation.

    Attributes:
        env: the server's name for the environment; the agents' own may differ.
        phase, state: what it is doing, in a word and as a sentence with numbers.
        round, rounds: rounds done, and R.
        agents: all of them, in order.
        curve: evaluations from the first to the last; long runs keep a part of them.
        env_steps, floats_up, floats_down: the costs of the run until the last evaluation.
        epsilon: the privacy loss until then of an agent that missed no round; None without noise.
        events: the last ones, the newest at the end.
        bytes_sent, bytes_received: packets to and from the agents, without what the network adds.
        began, changed: UNIX time of the server's start and of the last change.
        last_round: the last round in one line.
    """

    algorithm: str = ""
    env: str = ""
    phase: Phase = "starting"
    state: str = "starting"
    round: int = 0
    rounds: int = 0
    agents: list[AgentStatus] = []
    curve: list[Point] = []
    env_steps: float = 0.0
    floats_up: float = 0.0
    floats_down: float = 0.0
    epsilon: float | None = None
    events: list[Event] = []
    bytes_sent: int = 0
    bytes_received: int = 0
    began: float = 0.0
    changed: float = 0.0
    last_round: str = ""


def read_status(path: Path) -> Status | None:
    """The status in a file; None if there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except (OSError, ValueError, RecursionError):
        return None


def event_kind(what: str) -> str:
    """An event's text without its numbers: events that differ only in numbers are of one kind.

    >>> event_kind("a norm of 1.5e+30 is above the bound of 1e+09")
    'a norm of # is above the bound of #'
    """
    return re.sub(r"\d[\d.,e+-]*", "#", what)


class StatusWriter(Progress):
    """Keeps the file of a federation's status: the server's engine and the training loop report to it, from any thread.

    A file that cannot be written stops nothing. Counts continue from an earlier process of the same run.

    `rows` are the lines that metrics.jsonl holds already, for the curve of a resumed run.
    """

    def __init__(self, path: Path, config: Config, rows: Sequence[dict[str, Any]] = ()) -> None:
        self._path, self._lock, self._everyone = path, threading.RLock(), config.participation == 1
        self._during, self._asked, self._answers = "", list[int](), 0  # of the current exchange
        self._began = time.monotonic()
        before = read_status(path)
        if before is None or len(before.agents) != config.agents:
            before = Status(agents=[AgentStatus(number) for number in range(config.agents)], began=time.time())
        kept = {name: getattr(before, name) for name in ("agents", "events", "bytes_sent", "bytes_received", "began")}
        self._status = Status(config.algorithm, config.env, rounds=config.rounds, **kept)
        with self._change():
            self._see(set())
            for row in rows:
                self._add_point(row)

    def waiting(self, round: int, present: set[int], line: str) -> None:
        """Fewer agents than needed are there; `line` says who is missing."""
        with self._change() as status:
            self._see(present, time.time())
            status.phase, status.round, status.state = "waiting", round, line

    def slow(self, line: str) -> None:
        """The current exchange waits unusually long; `line` says for whom."""
        with self._change() as status:
            status.state = f"{status.state}; {line}"

    def left(self, agents: set[int]) -> None:
        """These agents have left for good."""
        with self._change() as status:
            for agent in agents:
                status.agents[agent].state, status.agents[agent].problem = "left", ""

    def asked(self, round: int, during: str, ids: list[int], sent: int) -> None:
        """The agents `ids` were given a task, `sent` bytes in all."""
        with self._change() as status:
            self._during, self._asked, self._answers, self._began = during, ids, 0, time.monotonic()
            everyone = self._everyone or during != "training"
            # Where all agents are wanted, those that were not asked are not there.
            self._see(set(ids) if everyone else {agent.number for agent in status.agents if agent.present} | set(ids))
            for agent in ids:
                status.agents[agent].state = "at work"
            status.round, status.bytes_sent = round, status.bytes_sent + sent
            self._describe_progress()

    def answered(self, agent: int, seconds: float, received: int, problem: str) -> None:
        """The answer of an agent was read, or its time is up; `problem` says why there is nothing to use."""
        with self._change() as status:
            its = status.agents[agent]
            if received:
                self._answers, its.seen, its.seconds = self._answers + 1, time.time(), None if math.isnan(seconds) else seconds
            its.problem = one_line(problem) or its.problem
            its.state = "present" if not problem else "refused" if received else "no answer"
            its.accepted += its.state == "present"
            its.refused += its.state == "refused"
            its.missed += its.state == "no answer"
            status.bytes_received += received
            self._describe_progress()

    @contextlib.contextmanager
    def running(self, config: Config, round: int) -> Iterator[None]:
        """The rounds begin, after `round` of them."""
        with self._change() as status:
            # A resumed run evaluates again what it had evaluated after its last checkpoint.
            status.rounds, status.round, status.curve = config.rounds, round, [point for point in status.curve if point.round <= round]
        yield

    def advanced(self, round: int) -> None:
        """So many rounds are done."""
        with self._change() as status:
            status.round = round
            took = time.monotonic() - self._began
            members = sum(agent.state not in ("not here yet", "left") for agent in status.agents)
            status.last_round = f"round {round} of {status.rounds}: {self._answers} of {members} agents in {took:.1f} s"

    def evaluated(self, row: dict[str, Any]) -> None:
        """A line of metrics.jsonl was written."""
        with self._change():
            self._add_point(row)

    def happened(self, event: dict[str, Any]) -> None:
        """A line of events.jsonl was written. Events of one kind are counted and shown once."""
        with self._change() as status:
            agent, what, round, during = event["agent"], one_line(event["what"]), event["round"], event["during"]
            if what == ABSENT and agent is not None:
                its = status.agents[agent]
                its.missed += 1
                if agent not in self._asked:  # it may have come, and have been asked, since
                    its.state, its.problem = "absent" if its.seen else "not here yet", ABSENT
            same = [known for known in status.events if known.agent == agent and event_kind(known.what) == event_kind(what)]
            number, count = max((known.number for known in status.events), default=0) + 1, 1 + sum(known.count for known in same)
            # Rounds are counted from 1, as in the state.
            counted = f"round {round + 1}"
            place = {"training": counted, MEMBERSHIP: counted, "evaluation": f"evaluation after round {round}"}.get(during, during)
            new = Event(number, time.time(), place, agent, what, count)
            status.events = [*(known for known in status.events if known not in same), new][-MAX_EVENTS:]

    @property
    def round(self) -> int:
        """Rounds done."""
        return self._status.round

    def finished(self) -> None:
        """The run has come to its end."""
        self._end("finished", f"finished: all {self.round} rounds are done")

    def stopped(self) -> None:
        """The server was stopped by its operator."""
        self._end("stopped", f"stopped after {self.round} of {self._status.rounds} rounds")

    def failed(self, reason: str) -> None:
        """The run has ended before its end."""
        self._end("failed", "failed: " + "".join(c if c.isprintable() else " " for c in reason[:MAX_REASON]))

    def _end(self, phase: Phase, state: str) -> None:
        with self._change() as status:
            for agent in status.agents:
                agent.state = "present" if agent.state == "at work" else agent.state
            status.phase, status.state = phase, state

    def _describe_progress(self) -> None:
        status, names = self._status, {"training": f"round {self._status.round + 1} of {self._status.rounds}", "evaluation": "evaluating"}
        status.phase = "evaluating" if self._during == "evaluation" else "training"
        status.state = f"{names.get(self._during, self._during)}: {self._answers} of {len(self._asked)} have answered"

    def _add_point(self, row: dict[str, Any]) -> None:
        status, point = self._status, Point(row["round"], row["return"], row["return_worst"])
        status.env_steps, status.floats_up, status.floats_down = (float(row[name]) for name in ("env_steps", "floats_up", "floats_down"))
        status.epsilon = row.get("epsilon")
        points = [*(known for known in status.curve if known.round < point.round), point]
        # Still the whole run, with fewer points: the first and the last stay.
        status.curve = [*points[:-1:2], point] if len(points) > MAX_POINTS else points

    def _see(self, present: set[int], now: float | None = None) -> None:
        """Records which agents are there; with `now`, they have just shown it."""
        for agent in self._status.agents:
            if agent.number not in present:
                agent.state = "left" if agent.state == "left" else "absent" if agent.seen else "not here yet"
                continue
            agent.seen = now or agent.seen or time.time()
            agent.state = agent.state if agent.state in ("refused", "no answer") else "present"

    @contextlib.contextmanager
    def _change(self) -> Iterator[Status]:
        with self._lock:
            yield self._status
            self._status.changed = time.time()
            # A reader sees the old content or the new, never a part. No fsync: after a crash nobody needs the file.
            temporary = self._path.with_name(f".{self._path.name}.tmp")
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                temporary.write_bytes(msgspec.json.encode(self._status))
                temporary.replace(self._path)
            except OSError:
                with contextlib.suppress(OSError):
                    temporary.unlink()

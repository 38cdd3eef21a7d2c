"""Asking agents on other machines: one task to each, answers until all have come or time is up, and none of them trusted."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedpg import named_arrays as wire
from fedpg.flower import packets, tasks
from fedpg.flower.packets import Refused


class Link(Protocol):
    """The way to the agents. Which machine an agent is on, and how it gets there, is the link's own business."""

    def present(self) -> set[int]:
        """The agents that can be asked now."""

    def ask(self, packets: dict[int, bytes], seconds: float) -> dict[int, bytes | str]:
        """Sends every agent its packet; its answer, or one line that says why there is none, after at most `seconds`."""


class Watcher(Protocol):
    """Whoever wants to know how the federation is."""

    def waiting(self, round: int, during: str, present: set[int], needed: int) -> None: ...
    def asked(self, round: int, during: str, ids: list[int], sent: int) -> None: ...
    def heard(self, agent: int, seconds: float, received: int, problem: str) -> None: ...


class Heard(NamedTuple):
    """Attributes:
    answered: whether an answer came at all.
    tree: what was in it; None if there was none, or none that can be used.
    withheld: whether the agent keeps that to itself.
    """

    answered: bool
    tree: Any
    withheld: bool = False


@dataclasses.dataclass(frozen=True)
class Terms:
    """What every task of a run has in common."""

    run: str
    """The run's own name."""
    config: str
    """The server's configuration, for the agents, as TOML."""
    agents: int = 0
    """N."""
    seconds: float = 120.0
    """How long to wait for answers."""
    largest_norm: float = 1e9
    """Messages longer than this are refused."""


class Asking:
    """Sends tasks through a link, checks what comes back, and keeps the record of what went wrong.

    Args:
        terms: what all tasks have in common.
        watcher: who is told; None for nobody.
        link: the way to the agents; may be set later, by one that keeps its record here.

    Attributes:
        live: whether there can be events; see `EventLog`, whose part this plays.
    """

    live = True

    def __init__(self, terms: Terms, watcher: Watcher | None = None, link: Link | None = None) -> None:
        self._terms, self._watcher, self.link = terms, watcher, link
        self._events: list[dict[str, Any]] = []
        self._serial = time.time_ns() // 1000  # above those of every earlier process of this run
        self._where = (0, "warm-up")

    def wait_for(self, needed: int, round: int, during: str, seconds: float = math.inf) -> None:
        """Returns when as many agents are there as are needed, or after `seconds`."""
        self._where = (round, during)
        told, end = False, time.monotonic() + seconds
        while time.monotonic() < end and len(present := self.link.present()) < needed:
            if self._watcher:
                self._watcher.waiting(round, during, present, needed)
            if not told:
                self.note(None, f"{len(present)} of {needed} agents are there: waiting for the others")
                told = True
            time.sleep(0.3)

    def ask(self, task: tasks.Task, shared: Any, template: Any, ids: np.ndarray, starts: Any, keeps: Any) -> list[Heard]:
        """Sends `task` with `shared` to the agents `ids`, each with its own state to start from.

        Returns:
            What each of them answered, in the order of `ids`, whatever the order in which it came.
        """
        arrays, expected = wire.flatten(shared), wire.shapes(template)
        round, during = self._where
        present, asked = self.link.present(), {}
        for i, agent in enumerate(ids.tolist()):
            if agent in present:
                self._serial += 1
                own = {} if starts is None else {"start": int(starts[i]), "keep": int(keeps[i])}
                terms = {"run": self._terms.run, "config": self._terms.config, "seconds": self._terms.seconds}
                header = dataclasses.replace(task, serial=self._serial, schema=packets.schema(expected), **terms, **own)
                asked[agent] = header, packets.pack(tasks.write(header), arrays)
        if self._watcher:
            self._watcher.asked(round, during, list(asked), sum(len(packet) for _, packet in asked.values()))
        began = time.monotonic()
        answers = self.link.ask({agent: packet for agent, (_, packet) in asked.items()}, self._terms.seconds) if asked else {}
        heard = []
        for agent in ids.tolist():
            if agent not in asked:
                self.note(agent, "absent")
                heard.append(Heard(False, None))
                continue
            heard.append(self._read(agent, asked[agent][0], answers.get(agent, "no answer"), template, expected, time.monotonic() - began))
        return heard

    def _read(self, agent: int, task: tasks.Task, answer: bytes | str, template: Any, expected: dict[str, Any], seconds: float) -> Heard:
        received, problem, found = 0 if isinstance(answer, str) else len(answer), "", None
        try:
            if isinstance(answer, str):
                raise Refused(answer)
            found = read_answer(answer, agent, task, expected, self._terms.largest_norm, self.note)
        except Refused as refused:
            problem = tasks.one_line(str(refused))
            self.note(agent, problem if isinstance(answer, str) else f"refused: {problem}")
        if self._watcher:
            self._watcher.heard(agent, seconds, received, problem)
        if found is None:
            came = not isinstance(answer, str)
            return Heard(came, None, withheld=came and not problem)
        return Heard(True, wire.unflatten(template, found))

    def note(self, agent: int | None, what: str) -> None:
        """Puts something on the record; `agent` is None where it concerns nobody in particular."""
        round, during = self._where
        self._events.append({"round": round, "during": during, "seed": 0, "agent": agent, "what": tasks.one_line(what)})

    def collect(self, round: int, during: str) -> None:
        """Nothing: events come with the answers."""

    def take(self) -> list[dict[str, Any]]:
        """The events since the last call."""
        taken, self._events = self._events, []
        return taken


def read_answer(
    data: bytes, agent: int, task: tasks.Task, expected: dict[str, Any], largest_norm: float, note: Any
) -> dict[str, np.ndarray] | None:
    """The arrays of an answer to `task`, if they are what was asked for; None if the agent keeps them to itself, and may.

    Raises:
        Refused: otherwise.
    """
    size = sum(int(np.prod(x.shape)) * np.dtype(x.dtype).itemsize for x in expected.values())
    packet = packets.unpack(data, 2 * size + 8 * packets.LONGEST_HEADER)
    answer = tasks.read(tasks.Answer, packet.header)
    if answer.error and not answer.run:  # it could not even read the task
        raise Refused(answer.error)
    if (answer.run, answer.agent) != (task.run, agent):
        raise Refused("an answer of another run, or for another agent")
    if answer.serial != task.serial:
        raise Refused("an answer to another task: of an old round, or of none")
    for event in answer.events:
        note(agent, event)
    if answer.error:
        raise Refused(answer.error)
    if answer.withheld and task.kind in (tasks.REPORT, tasks.EVALUATE):
        return None
    if answer.schema != task.schema:
        raise Refused("arrays of another schema: not the same algorithm, policy or precision")
    # How long a message is matters; a sum of returns or of squared weights may be as large as it likes.
    arrays = packets.checked(packet.arrays, expected, largest_norm, tasks.MESSAGE)
    if answer.fresh:
        note(agent, "its state was gone: it began anew")
    return arrays

"""How a federation is at one moment."""

from __future__ import annotations

import dataclasses

STARTING, WAITING, TRAINING, EVALUATING = "starting", "waiting", "training", "evaluating"
FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"
ACCEPTED, REFUSED, MISSED = "accepted", "refused", "missed"


@dataclasses.dataclass(frozen=True)
class Agent:
    """What the server knows of one agent."""

    number: int
    """Which."""
    present: bool = False
    """Whether it could be asked when the server last looked."""
    seen: float | None = None
    """When there was last a sign of life, UNIX time; None if there never was."""
    at_work: bool = False
    """Whether it has a task and has not answered yet."""
    outcome: str = ""
    """What became of its last task: accepted, refused or missed; empty if it never had one."""
    accepted: int = 0
    """Answers that were used."""
    refused: int = 0
    """Answers that were not."""
    missed: int = 0
    """Answers that did not come, and tasks that it could not be given."""
    problem: str = ""
    """Why an answer was last refused or missed."""
    seconds: float | None = None
    """How long its last answer took."""


@dataclasses.dataclass(frozen=True)
class Point:
    """One evaluation."""

    round: int
    """After how many rounds."""
    total_return: float | None
    """Mean over the agents; None if they keep it to themselves."""
    return_worst: float | None
    """Of the worst of them."""


@dataclasses.dataclass(frozen=True)
class Metrics(Point):
    """The last evaluation, with what the run has cost until then."""

    env_steps: float
    """Steps in the agents' environments."""
    floats_up: float
    """Numbers that agents sent."""
    floats_down: float
    """Numbers that the server sent."""
    epsilon: float | None = None
    """What the messages of one agent have given away; None without noise."""


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that a person may want to know."""

    number: int
    """Grows with every event."""
    when: float
    """UNIX time; of the last, if it happened more than once."""
    round: int
    """The round it happened in."""
    during: str
    """warm-up, training or evaluation."""
    agent: int | None
    """Whom it concerns; None: nobody in particular."""
    what: str
    """One line."""
    count: int = 1
    """How often."""


@dataclasses.dataclass(frozen=True)
class Status:
    """How a federation is."""

    algorithm: str = ""
    """How it learns."""
    env: str = ""
    """What the server calls the environment; the agents' own may differ."""
    phase: str = STARTING
    """starting, waiting, training, evaluating, finished, stopped or failed."""
    state: str = STARTING
    """The same in words, with numbers."""
    round: int = 0
    """Rounds done."""
    rounds: int | None = None
    """R."""
    agents: tuple[Agent, ...] = ()
    """All of them, in order."""
    metrics: Metrics | None = None
    """The last evaluation."""
    curve: tuple[Point, ...] = ()
    """Evaluations from the first to the last; of long runs not all."""
    events: tuple[Event, ...] = ()
    """The last ones, the newest at the end."""
    bytes_sent: int = 0
    """To the agents, as packets, without what the network adds."""
    bytes_received: int = 0
    """From them."""
    began: float = 0.0
    """When the server started, UNIX time."""
    changed: float = 0.0
    """When anything here last changed."""

    @property
    def finished(self) -> bool:
        """Whether all rounds are done."""
        return self.phase == FINISHED

    @property
    def failure(self) -> str:
        """Why the run ended before its end; empty if it did not."""
        return self.state.removeprefix("failed: ") if self.phase == FAILED else ""

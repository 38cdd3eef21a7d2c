"""What is shown while a run goes on."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import rich.progress
from rich.console import Console

from fedpg.runs.config import Config

MOST_SHOWN = 20
"""Different events shown on the screen; the rest is in events.jsonl only."""


class Progress:
    """Gets reports from the training loop. This one shows nothing; subclasses show what they like."""

    def running(self, config: Config, round: int) -> contextlib.AbstractContextManager[None]:
        """A context around all that follows in this process, which begins after `round` rounds."""
        return contextlib.nullcontext()

    def advanced(self, round: int) -> None:
        """`round` rounds are done."""

    def evaluated(self, row: dict[str, Any]) -> None:
        """A line was added to metrics.jsonl."""

    def happened(self, event: dict[str, Any]) -> None:
        """A line was added to events.jsonl."""


class Bar(Progress):
    """A bar with the current return; without a terminal, one line per evaluation.

    Args:
        console: where to draw.
        label: the run's name on the screen.
    """

    def __init__(self, console: Console, label: str | None = None) -> None:
        self._console, self._label = console, label
        self._shown: set[tuple[int, str]] = set()
        self._compiling = False

    @contextlib.contextmanager
    def running(self, config: Config, round: int) -> Iterator[None]:
        columns = ("[progress.description]{task.description}", rich.progress.BarColumn(), rich.progress.MofNCompleteColumn())
        columns += ("rounds", "{task.fields[result]}", rich.progress.TimeElapsedColumn(), rich.progress.TimeRemainingColumn())
        label = self._label or f"{config.algorithm} on {config.env}"
        with rich.progress.Progress(*columns, console=self._console, disable=not self._console.is_terminal) as self._bar:
            self._task = self._bar.add_task(label, total=config.rounds, completed=round, result="compiling")
            self._compiling, self._result, self._began = True, "return -", time.monotonic()
            if not self._console.is_terminal:
                self._print(f"{label}: compiling")
            yield

    def advanced(self, round: int) -> None:
        if self._compiling:
            self._compiling = False
            if not self._console.is_terminal:
                self._print(f"compiled, first rounds done after {time.monotonic() - self._began:.1f} s")
        self._bar.update(self._task, completed=round, result=self._result)

    def evaluated(self, row: dict[str, Any]) -> None:
        result = "return -"
        if row["return"] is not None:
            failed = f", {len(row['failed_seeds'])} failed" if row["failed_seeds"] else ""
            result = f"return {row['return']:.1f}, worst agent {row['return_worst']:.1f}{failed}"
        self._result = result
        self._bar.update(self._task, result=f"compiling, {result}" if self._compiling else result)
        if not self._console.is_terminal:
            label = f"{self._label}, " if self._label else ""
            self._print(f"{label}round {row['round']}: {result}, {row['env_steps']:.3g} env steps")

    def happened(self, event: dict[str, Any]) -> None:
        """Shows each kind of event of each agent once."""
        kind = (event["agent"], event["what"])
        if kind not in self._shown and len(self._shown) < MOST_SHOWN:
            self._shown.add(kind)
            whose = "" if event["agent"] is None else f"agent {event['agent']} left out: "
            self._print(f"round {event['round']}, {event['during']}: {whose}{event['what']} (events.jsonl has all)")

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True, markup=False)

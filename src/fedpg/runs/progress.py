"""What a person sees while a run goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import rich.progress
from rich.console import Console

from fedpg.runs.config import Config

MOST_TOLD = 20
"""Different mishaps shown on the screen; the rest is in events.jsonl only."""


class Progress(Protocol):
    """Told by the loop what happens."""

    def running(self, config: Config, round: int) -> contextlib.AbstractContextManager[None]: ...
    def advanced(self, round: int) -> None: ...
    def evaluated(self, row: dict[str, Any]) -> None: ...
    def happened(self, event: dict[str, Any]) -> None: ...


class Silent:
    """Says nothing."""

    def running(self, config: Config, round: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def advanced(self, round: int) -> None:
        pass

    def evaluated(self, row: dict[str, Any]) -> None:
        pass

    def happened(self, event: dict[str, Any]) -> None:
        pass


class Bar:
    """A bar with the current return; without a terminal, one line per evaluation.

    Args:
        console: where to draw.
        label: what to call the run.
    """

    def __init__(self, console: Console, label: str | None = None) -> None:
        self._console, self._label = console, label
        self._row: dict[str, Any] | None = None
        self._told: set[tuple[int, str]] = set()
        self._bar: rich.progress.Progress | None = None

    @contextlib.contextmanager
    def running(self, config: Config, round: int) -> Iterator[None]:
        label = self._label or f"{config.algorithm} on {config.env}"
        if not self._console.is_terminal:
            yield
            return
        columns = ("[progress.description]{task.description}", rich.progress.BarColumn(), rich.progress.MofNCompleteColumn())
        with rich.progress.Progress(
            *columns, "rounds", "{task.fields[result]}", rich.progress.TimeRemainingColumn(), console=self._console
        ) as bar:
            self._bar, self._task = bar, bar.add_task(label, total=config.rounds, completed=round, result=self._result())
            yield
        self._bar = None

    def advanced(self, round: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=round)

    def evaluated(self, row: dict[str, Any]) -> None:
        self._row = row
        if self._bar is not None:
            self._bar.update(self._task, result=self._result())
        elif not self._console.is_terminal:
            label = f"{self._label}, " if self._label else ""
            self._console.print(
                f"{label}round {row['round']}: {self._result()}, {row['env_steps']:.3g} env steps", highlight=False, soft_wrap=True
            )

    def happened(self, event: dict[str, Any]) -> None:
        """Says what went wrong with an agent, once for each kind of thing."""
        kind = (event["agent"], event["what"])
        if kind not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(kind)
            whose = "" if event["agent"] is None else f"agent {event['agent']} left out: "
            line = f"round {event['round']}, {event['during']}: {whose}{event['what']} (events.jsonl has all)"
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)

    def _result(self) -> str:
        if self._row is None or self._row["return"] is None:
            return "return -"
        failed = f", {len(self._row['failed_seeds'])} failed" if self._row["failed_seeds"] else ""
        return f"return {self._row['return']:.1f}, worst agent {self._row['return_worst']:.1f}{failed}"

"""Sends rows to trackers, each in a thread of its own: one that hangs or fails costs the training nothing."""

from __future__ import annotations

import contextlib
import importlib
import queue
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType, TracebackType
from typing import Any

from fedpg.errors import UserError, choose
from fedpg.runs.config import Config
from fedpg.runs.folder import RunFolder
from fedpg.runs.points import Points

NAMES = ("tensorboard", "wandb", "mlflow")
"""What `--track` knows: each the name of a module here, of the package it imports and of the extra that brings that."""
PATIENCE, HURRY = 30.0, 2.0
"""Seconds that trackers get at the end of a process to take what is left; after a second Ctrl-C."""


def check(names: Iterable[str]) -> None:
    """Refuses trackers that are unknown, not installed, or not set up."""
    for name in names:
        choose("tracker", name, NAMES)
        try:
            module_of(name).check()
        except ImportError as error:
            raise UserError(f"--track {name} needs {name}: pip install 'fedpg[{name}]'") from error


def module_of(name: str) -> ModuleType:
    """The module of a tracker."""
    return importlib.import_module(f"fedpg.runs.{name}")


class Sender:
    """One tracker and the thread that talks to it.

    Args:
        name: of the tracker.
        folder: the run.
        config: complete.

    Attributes:
        problem: one line on what went wrong, after which nothing more is sent; None while all is well.
    """

    def __init__(self, name: str, folder: RunFolder, config: Config) -> None:
        self.name, self._folder, self._config = name, folder, config
        self.problem: str | None = None
        self._waiting: queue.SimpleQueue[dict[str, Any] | bool] = queue.SimpleQueue()
        # a daemon: a server that never answers must not keep the process alive
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def send(self, rows: Sequence[dict[str, Any]]) -> None:
        """Leaves rows to the thread."""
        for row in rows:
            self._waiting.put(row)

    def finish(self, complete: bool) -> None:
        """Says that no more rows come, and whether the run is at its end."""
        self._waiting.put(complete)

    def wait(self, seconds: float | None) -> None:
        """Until all is sent, at most so long."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            self.problem = self.problem or "it did not take everything in time"

    def _work(self) -> None:
        tracker = None
        try:
            with self._folder.lock(f".{self.name}.lock", f"it sends this run to {self.name}"):
                points = Points(self._folder)
                tracker = module_of(self.name).open_run(self._folder, self._config)
                while isinstance(item := self._waiting.get(), dict):
                    tracker.log(points.of(item))
                tracker.close(item)
        except Exception as error:  # trackers raise whatever they like, and the run goes on all the same
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            self.problem = kind + next(iter(str(error).strip().splitlines()), "no reason given")
            if tracker is not None:
                with contextlib.suppress(Exception):
                    tracker.close(False)


class Trackers:
    """The trackers of a run, to be used in a `with` block around it. Trackers are opened when they are first told something.

    Args:
        folder: the run.
        config: complete; its `track` says which.
        report: called, in the thread of whoever calls `tell`, with one line for every tracker that fails.
        patience: seconds they get at the end; None for as long as they need.
    """

    def __init__(self, folder: RunFolder, config: Config, report: Callable[[str], None], patience: float | None = PATIENCE) -> None:
        self._folder, self._config, self._report, self._patience = folder, config, report, patience
        self._told, self._last = 0, -1
        self._opened, self._senders = False, []

    def tell(self, rows: Sequence[dict[str, Any]]) -> None:
        """Sends those of the run's rows, all of them up to now, that were not sent before.

        To be called when they are safe: rows up to the checkpoint. Later ones are dropped when a killed run is resumed, which
        trackers could not undo.
        """
        if not self._opened:
            self._opened = True
            self._senders = [Sender(name, self._folder, self._config) for name in dict.fromkeys(self._config.track)]
        for sender in self._senders:
            sender.send(rows[self._told :])
        self._told, self._last = len(rows), rows[-1]["round"] if rows else -1
        self._look()

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for sender in self._senders:
            sender.finish(self._last == self._config.rounds)
        patience = HURRY if kind is KeyboardInterrupt else self._patience
        until = None if patience is None else time.monotonic() + patience
        for sender in self._senders:
            sender.wait(None if until is None else max(0.0, until - time.monotonic()))
        self._look()

    def _look(self) -> None:
        for sender in [sender for sender in self._senders if sender.problem is not None]:
            self._senders.remove(sender)
            again = f"fedpg track {shlex.quote(str(self._folder.path))} --to {sender.name}"
            self._report(f"{sender.name}: {sender.problem}; nothing is lost, and once it is mended this sends the rest: {again}")

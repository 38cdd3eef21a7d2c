"""Sends the lines of metrics.jsonl to trackers, each in its own thread: a tracker that hangs or fails does not stop the training.

The module of a tracker has a class `Tracker(folder, config, run_id)` with two methods: log(round, time, values) for every evaluated
round, in order from 0, of which it skips those that it has from an earlier process; and close(complete). It may have check().
"""

import contextlib
import datetime
import importlib
import json
import queue
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fedpg.errors import UserError, choose
from fedpg.runs.config import Config
from fedpg.runs.folder import RunFolder, write_atomically

NAMES = ("tensorboard", "wandb", "mlflow")
"""What `--track` knows: the name of a module here, of the package that it imports, and of the extra that installs the package."""
TRACKING = "tracking"
"""The `during` of an event that is about a tracker, not about an agent."""
PATIENCE, HURRY = 30.0, 2.0
"""Seconds that trackers get at the end of a process to take what is left; the same after a second Ctrl-C."""


def check(names: Iterable[str]) -> None:
    """Refuses trackers that are unknown, not installed, or not set up."""
    for name in names:
        choose("tracker", name, NAMES)
        try:
            module = importlib.import_module(f"fedpg.runs.{name}")
        except ImportError as error:
            raise UserError(f"--track {name} needs {name}: pip install 'fedpg[{name}]'") from error
        if hasattr(module, "check"):
            module.check()


def values_of(row: dict[str, Any]) -> dict[str, float]:
    """The numbers of a row. Lists over agents become NAME/0, NAME/1, ...; lists over seeds are left out: their means are there.

    >>> values_of({"round": 4, "return": 1.5, "ess": None, "return_per_seed": [1, 2], "return_per_agent": [1, None], "failed_seeds": {}})
    {'return': 1.5, 'return_per_agent/0': 1.0, 'failed_seeds': 0.0}
    """
    values: dict[str, Any] = {}
    for name, value in row.items():
        if name == "failed_seeds":
            values[name] = len(value)
        elif name.endswith("_per_agent"):
            values |= {f"{name}/{agent}": entry for agent, entry in enumerate(value)}
        elif isinstance(value, (int, float)) and name != "round":
            values[name] = value
    return {name: float(value) for name, value in values.items() if value is not None}


def run_id(folder: RunFolder) -> str:
    """The run's name in trackers. It is on disk before it is first used, so that a kill never makes two runs of one."""
    path = folder.path / "tracking-id"
    if not path.exists():
        write_atomically(path, secrets.token_hex(8).encode())
    return path.read_text()


class Sender(threading.Thread):
    """The thread that talks to one tracker.

    Attributes:
        items: rows to send; at the end, whether the run is complete.
        problem: one line on what went wrong, after which nothing more is sent; None while all is well.
    """

    def __init__(self, name: str, folder: RunFolder, config: Config, run_id: str) -> None:
        super().__init__(name=name, daemon=True)  # a server that never answers must not keep the process alive
        self.items: queue.SimpleQueue[dict[str, Any] | bool] = queue.SimpleQueue()
        self.problem: str | None = None
        self._folder, self._config, self._run_id = folder, config, run_id
        self.start()

    def run(self) -> None:
        tracker = None
        try:
            with self._folder.lock(f".{self.name}.lock", f"it sends this run to {self.name}"):
                created = json.loads(self._folder.manifest.read_text())["created"]
                began = datetime.datetime.fromisoformat(created).timestamp()
                module = importlib.import_module(f"fedpg.runs.{self.name}")
                tracker = module.Tracker(self._folder, self._config, self._run_id)
                # a point's time does not depend on when it is sent
                while isinstance(item := self.items.get(), dict):
                    tracker.log(item["round"], began + item["seconds"], values_of(item))
                tracker.close(item)
        except Exception as error:  # a tracker may raise anything, and the run goes on all the same
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            self.problem = kind + next(iter(str(error).strip().splitlines()), "no reason given")
            if tracker is not None:
                with contextlib.suppress(Exception):
                    tracker.close(False)


@contextlib.contextmanager
def sending(
    folder: RunFolder, config: Config, report: Callable[[str], None], patience: float | None = PATIENCE
) -> Iterator[Callable[[Sequence[dict[str, Any]]], None]]:
    """Yields a function that sends those of a run's rows that it has not sent before; it opens the trackers at its first call.

    It is given rows up to the checkpoint: later ones are dropped when a killed run is resumed, which trackers cannot undo.

    Args:
        folder: the run.
        config: complete; its `track` says which trackers.
        report: called, in the thread of the caller, with one line for every tracker that fails.
        patience: seconds that trackers get at the end; None for as long as they need.
    """
    senders: list[Sender] = []
    unopened, sent, complete = list(dict.fromkeys(config.track)), 0, False

    def report_problems() -> None:
        for sender in [sender for sender in senders if sender.problem is not None]:
            senders.remove(sender)
            again = f"fedpg track {shlex.quote(str(folder.path))} --to {sender.name}"
            report(f"{sender.name}: {sender.problem}; nothing is lost, and once it is mended this sends the rest: {again}")

    def send(rows: Sequence[dict[str, Any]]) -> None:
        nonlocal sent, complete
        while unopened:
            senders.append(Sender(unopened.pop(0), folder, config, run_id(folder)))
        for row in rows[sent:]:
            for sender in senders:
                sender.items.put(row)
        sent, complete = len(rows), bool(rows) and rows[-1]["round"] == config.rounds
        report_problems()

    try:
        yield send
    except KeyboardInterrupt:
        patience = HURRY
        raise
    finally:
        until = None if patience is None else time.monotonic() + patience
        for sender in senders:
            sender.items.put(complete)
        for sender in senders:
            sender.join(None if until is None else max(0.0, until - time.monotonic()))
            if sender.is_alive():
                sender.problem = "it did not take everything in time"
        report_problems()

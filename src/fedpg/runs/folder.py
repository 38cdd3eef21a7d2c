"""A run folder: config.toml, manifest.json, metrics.jsonl, events.jsonl, checkpoint/.

Written so that a kill at any moment loses nothing. events.jsonl is there only if something happened.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedpg.errors import UserError, require

LOCK = ".lock"
FEDERATION = "federation"
"""The subfolder of a run between machines: what its server's processes need."""


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file so that a reader, or a crash, sees either the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise UserError(f"cannot write {path}: {error.strerror}; what was there before is unharmed") from error


class RunFolder:
    """The files of one run.

    Args:
        path: the folder; need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.manifest = path / "manifest.json"
        self.metrics = path / "metrics.jsonl"
        self.events = path / "events.jsonl"
        self.checkpoint = path / "checkpoint" / "state.safetensors"
        self.federation = path / FEDERATION

    def require_empty(self) -> None:
        """Refuses a folder that holds another run, or anything else."""
        if self.config.exists():
            raise UserError(f"{self.path} holds a run already: add --resume to continue it, or give another --out")
        require(not self.path.exists() or self.path.is_dir(), f"{self.path} is a file: give another --out")
        others = [path for path in self.path.glob("*") if path.name not in (LOCK, FEDERATION)]
        require(not others, f"{self.path} is not empty: give another --out")

    def require_run(self) -> None:
        """Refuses a folder without a run."""
        require(self.config.exists(), f"no run to resume in {self.path}: leave out --resume to start one")

    @contextlib.contextmanager
    def lock(self, name: str = LOCK, hint: str = "wait for it, or give another --out") -> Iterator[None]:
        """Keeps a second process out while this one writes, or does what the lock `name` is for; `hint` ends its error."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = (self.path / name).open("w")
        except OSError as error:
            raise UserError(f"cannot write to {self.path}: {error.strerror}") from error
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"another process is working in {self.path}: {hint}") from None
            yield

    def append_row(self, row: dict[str, Any]) -> None:
        """Adds one line to metrics.jsonl."""
        _append(self.metrics, row)

    def append_event(self, event: dict[str, Any]) -> None:
        """Adds one line to events.jsonl."""
        _append(self.events, event)

    def rows(self) -> list[dict[str, Any]]:
        """The complete lines of metrics.jsonl; a line cut off by a crash is left out."""
        return _read(self.metrics)

    def keep_rows(self, last_round: int) -> list[dict[str, Any]]:
        """Drops lines after `last_round` (written after the checkpoint that a resumed run starts from); returns the rest."""
        rows = [row for row in self.rows() if row["round"] <= last_round]
        _write(self.metrics, rows)
        return rows

    def keep_events(self, rounds_done: int) -> None:
        """Drops events that a run resumed after `rounds_done` rounds will see again."""
        if self.events.exists():
            known = [event for event in _read(self.events) if event["round"] < rounds_done + (event["during"] != "training")]
            _write(self.events, known)


def _append(path: Path, row: dict[str, Any]) -> None:
    try:
        with path.open("a") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; make room, then --resume") from error


def _read(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a file; one cut off by a crash is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    write_atomically(path, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode())

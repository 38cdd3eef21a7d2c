"""A run folder: config.toml, manifest.json, metrics.jsonl, events.jsonl, checkpoint/, policy/.

Files are written such that a kill at any moment loses nothing. events.jsonl exists only if something went wrong.
"""

import contextlib
import datetime
import fcntl
import functools
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedpg.errors import UserError, require

LOCK = ".lock"
FEDERATION = "federation"
"""The subfolder of a run between machines, with what its server's processes need."""
PACKAGES = ("fedpg", "jax", "jaxlib", "numpy", "safetensors", "gymnasium", "mujoco")
"""Packages whose versions the manifest records."""


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file such that a reader, or a crash, sees either the old content or the new, never a part."""
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
        self.policy = path / "policy"
        self.federation = path / FEDERATION

    def require_empty(self) -> None:
        """Refuses a folder that holds a run, or anything else."""
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
        """Keeps a second process out while this one holds the lock `name`; `hint` ends the error that the second one gets."""
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


def manifest() -> dict[str, Any]:
    """What a result is made with: command, versions, devices, precision."""
    import jax  # here, because a policy is loaded without JAX

    from fedpg.simulate import PRECISION

    return {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in PACKAGES},
        "backend": jax.default_backend(),
        "devices": [device.device_kind for device in jax.devices()],
        "matmul_precision": PRECISION,
        "x64": bool(jax.config.jax_enable_x64),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


@functools.cache
def version(package: str) -> str | None:
    """The installed version of a package, None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def write_json(path: Path, value: Any) -> None:
    """Writes an indented JSON file atomically."""
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


def append_line(path: Path, row: dict[str, Any]) -> None:
    """Adds one line to a file of JSON lines."""
    try:
        with path.open("a") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; make room, then --resume") from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of JSON lines; a last line cut off by a crash is left out. Empty if there is no file.

    Raises:
        UserError: if another line is damaged, or the file cannot be read.
    """
    try:
        rows, lines = [], path.read_bytes().splitlines() if path.exists() else []
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line, parse_constant=_refuse)
            if not isinstance(row, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError):
            if number == len(lines):
                break
            raise UserError(f"line {number} of {path} is damaged: restore the file from a copy, or delete the line") from None
        rows.append(row)
    return rows


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def read_manifest(path: Path) -> dict[str, Any]:
    """The content of manifest.json.

    Raises:
        UserError: if it is missing or damaged.
    """
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        found = None
    sound = isinstance(found, dict) and isinstance(found.get("resumed", []), list)
    require(sound, f"{path} is missing or damaged: restore it from a copy, or write {{}} into it")
    return found


def keep_lines(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Drops the lines of a file of JSON lines that are not wanted; returns the rest."""
    rows = [row for row in read_lines(path) if wanted(row)]
    if path.exists():
        write_atomically(path, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode())
    return rows

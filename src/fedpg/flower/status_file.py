"""The small file in which the server's processes tell each other how the federation is.

One process writes it, any number read it; a reader sees the old content or the new, never a part.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import threading
import time
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedpg.flower.snapshot import Status


def to_json(status: Status) -> bytes:
    """The status as it is in the file."""
    return json.dumps(dataclasses.asdict(status), allow_nan=False).encode()


def read(path: Path) -> Status | None:
    """The status in a file; None if there is none, or none that can be read."""
    try:
        return _build(Status, json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def write(path: Path, status: Status) -> bool:
    """Writes the file; False if it cannot be, in which case the old one stays. Without fsync: after a crash nobody needs it."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(to_json(status))
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        return False
    return True


_hints = functools.cache(typing.get_type_hints)


def _build(kind: Any, value: Any) -> Any:
    """`value`, from JSON, as a `kind`; a ValueError where it is none. So whoever shows a status can rely on its types."""
    if dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        if not isinstance(value, dict) or set(value) != set(hints):
            raise ValueError(f"no {kind.__name__}")
        return kind(**{name: _build(hint, value[name]) for name, hint in hints.items()})
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise ValueError("no list")
        return tuple(_build(typing.get_args(kind)[0], item) for item in value)
    if isinstance(kind, types.UnionType):
        return None if value is None else _build(typing.get_args(kind)[0], value)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or (kind is float and not math.isfinite(value)):
        raise ValueError(f"no {kind.__name__}")
    return value


class Writer:
    """Writes the file when something has changed, but not too often; the last change is always written.

    Args:
        path: the file.
        every: the fewest seconds between two writings.
        current: what to write; called with `lock` held.

    Attributes:
        lock: held while the file is written; whoever changes what `current` gives holds it too.
    """

    def __init__(self, path: Path, every: float, current: Callable[[], Status]) -> None:
        self._path, self._every, self._current = path, every, current
        self._timer: threading.Timer | None = None
        self._saved = -math.inf
        self.lock = threading.RLock()

    def soon(self) -> None:
        """Something has changed."""
        with self.lock:
            left = self._every - (time.monotonic() - self._saved)
            if left <= 0:
                self.now()
            elif self._timer is None:
                # Not a daemon: a process that ends now writes its last change first.
                self._timer = threading.Timer(left, self.now)
                try:
                    self._timer.start()
                except RuntimeError:  # no more threads
                    self.now()

    def now(self) -> None:
        """Writes it at once."""
        with self.lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._saved = None, time.monotonic()
            write(self._path, self._current())

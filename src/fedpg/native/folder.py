"""Where compiled kernels are kept between processes."""

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from fedpg import cache

SOURCES = Path(__file__).parent


@functools.cache
def folder() -> Path:
    """A folder that only this user can write to: in the cache, or for this process alone if nothing is to be kept."""
    try:
        place = cache.folder()
        if place is not None:
            cache.prepare(place)
            place = place / "kernels"
            place.mkdir(mode=0o700, exist_ok=True)
            return place
    except (OSError, RuntimeError):  # `cache.turn_on` has said why
        pass
    place = Path(tempfile.mkdtemp(prefix="fedpg-kernels-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def name_of(*parts: str) -> str:
    """A short name that changes with every one of `parts`."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The file called `name` in the folder, which `make` writes to a path of its own if it is not there yet."""
    place = folder() / name
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=folder()) as own:
            make(Path(own) / name)
            os.replace(Path(own) / name, place)  # another process may do the same
    return place

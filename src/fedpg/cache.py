"""The folder in which compiled programs stay between processes: JAX's compilation cache, on by default and with a largest size.

JAX makes the name of an entry from the program, its options and the version of jaxlib. What is read from the folder is run as machine
code, so nobody else may write there, and machines with other processors that share the folder have a part of their own.
"""

import contextlib
import hashlib
import os
import platform
import stat
import sys
from pathlib import Path

import filelock

from fedpg.errors import one_line

VARIABLE = "FEDPG_CACHE_DIR"
"""Environment variable with another folder, or `off`; processes started by this one inherit it."""
OFF = "off"
MOST_BYTES = 2**29
"""The size at which JAX deletes the programs that were not used for longest."""
FOLDER_OF_JAX = "JAX_COMPILATION_CACHE_DIR"
"""JAX's own variable: the choice of a user, which wins, or ours in a process that we started."""
LOCK, ENTRY, USED = ".lockfile", "-cache", "-atime"
"""Names of JAX's: the lock around every access, and how an entry and the time of its last use end."""
PATIENCE = 10.0
"""Seconds to wait for the lock."""


def folder() -> Path | None:
    """Where this user's programs for this machine are kept; None if the cache is switched off."""
    given = os.environ.get(VARIABLE, "")
    return None if given.lower() == OFF else (Path(given).expanduser() if given else _user_folder()) / _processor()


def _user_folder() -> Path:
    """The folder of fedpg in the place for such files."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "fedpg" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "fedpg"
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "fedpg"  # a relative path counts as none


def _processor() -> str:
    """A name for what the processor can do."""
    known = [platform.machine(), platform.processor()]
    with contextlib.suppress(OSError):  # only Linux says more
        known += sorted({line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("flags", "Features"))})
    return f"xla-{hashlib.sha256(repr(known).encode()).hexdigest()[:12]}"


def turn_on() -> str | None:
    """Lets JAX keep compiled programs, in this process and in those it starts. Returns why a folder cannot be used, if so.

    A folder that the user chose for JAX stays.
    """
    jax = sys.modules.get("jax")
    if FOLDER_OF_JAX in os.environ or (jax and jax.config.jax_compilation_cache_dir is not None):
        return None
    try:
        place = folder()
        if place is None:
            return None
        prepare(place)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home, or no locks
        return f"compiled programs are not kept: {one_line(str(error))} (set {VARIABLE} to another folder, or to {OFF})"
    settings = {
        "jax_compilation_cache_dir": str(place),
        "jax_compilation_cache_max_size": MOST_BYTES,
        "jax_persistent_cache_min_compile_time_secs": 0.0,  # a second start should compile nothing
        "jax_persistent_cache_min_entry_size_bytes": -1,
        "jax_persistent_cache_enable_xla_caches": "none",  # they have no largest size
    }
    for name, value in settings.items():
        os.environ.setdefault(name.upper(), str(value))
        if jax:
            jax.config.update(name, value)
    return None


def prepare(place: Path) -> None:
    """Makes the folder, refuses one that is not safe or not writable, and deletes entries whose writing was interrupted."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid"):
        about = place.stat()
        if about.st_uid != os.getuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"others may write to {place}")
    with filelock.FileLock(place / LOCK, timeout=PATIENCE):
        entries = {path.name.removesuffix(ENTRY) for path in place.glob(f"*{ENTRY}")}
        # JAX writes the time after the entry: without it, the entry may be half a program, and JAX would neither use nor replace it.
        times = {path.name.removesuffix(USED) for path in place.glob(f"*{USED}")}
        for name in entries - times:
            (place / f"{name}{ENTRY}").unlink()
        for name in times - entries:
            (place / f"{name}{USED}").unlink()


def size(place: Path) -> int:
    """Bytes of all entries in a folder."""
    return sum(path.stat().st_size for path in place.glob(f"*{ENTRY}"))

"""The kernel for CPUs: C, compiled on this machine."""

import ctypes
import functools
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jax

from fedpg.native.folder import SOURCES, kept, name_of

FLAGS = ("-std=c11", "-O3", "-march=native", "-ffp-contract=off", "-fPIC", "-shared")
SCRATCH = False
"""Whether the kernel has a further result as its working memory."""
PATIENCE = 60.0
"""Seconds after which a compiler is given up."""


@functools.cache
def compiler() -> tuple[str, ...] | None:
    """The command of the machine's C compiler; None if there is none."""
    for given in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        words = shlex.split(given)
        if words and shutil.which(words[0]):
            return tuple(words)
    return None


@functools.cache
def why_not() -> str | None:
    """Why there is no kernel; None if there is one. Compiles the smallest one to find out."""
    if os.name == "nt":
        return "not on Windows"
    if compiler() is None:
        return "no C compiler"
    try:
        library(1, 1, False, False)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines() or [type(error).__name__]
        return f"{compiler()[0]} failed: {next((line for line in said if 'error' in line), said[0])}"
    return None


def command(output: Path, states: int, actions: int, valued: bool, lazy: bool) -> list[str]:
    """What compiles the kernel of a shape."""
    macros = {"STATES": states, "ACTIONS": actions, "VALUED": int(valued), "LAZY": int(lazy)}
    defined = [f"-D{name}={value}" for name, value in macros.items()]
    return [*compiler(), *FLAGS, *defined, f"-I{jax.ffi.include_dir()}", f"-I{SOURCES}", str(SOURCES / "visits.c"), "-o", str(output)]


@functools.cache
def library(states: int, actions: int, valued: bool, lazy: bool) -> tuple[str, Any]:
    """The name of the kernel of a shape, and its loaded library."""
    sources = [(SOURCES / file).read_text() for file in ("common.h", "visits.c")]
    header = (Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h").read_text()
    name = "fedpg_visits_" + name_of(*sources, header, *command(Path(), states, actions, valued, lazy))

    def compile(output: Path) -> None:
        subprocess.run(command(output, states, actions, valued, lazy), check=True, capture_output=True, text=True, timeout=PATIENCE)

    return name, ctypes.CDLL(str(kept(f"{name}.so", compile)))


def eager(states: int, actions: int, valued: bool, horizon: int) -> bool:
    """Whether all rows are made before any is visited: there are few."""
    return states * actions <= 2 * horizon


@functools.cache
def target(states: int, actions: int, valued: bool, eager: bool) -> str:
    """The name under which XLA knows the kernel of a shape."""
    name, loaded = library(states, actions, valued, not eager)
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(loaded.fedpg_visits), platform="cpu")
    return name

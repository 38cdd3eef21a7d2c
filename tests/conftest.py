"""Shared fixtures. `tests/` itself is put on the path, so that tests can say `from helpers...`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Many tests compile the same small programs: compile each once, for all workers and the processes they start.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def float64() -> Iterator[None]:
    """Double precision for one test; every other test stays in float32, as users run it."""
    with jax.enable_x64(True):
        yield

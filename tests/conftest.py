"""Shared fixtures. `tests/` itself is put on the path, so that tests can say `from helpers...`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

# Many tests compile the same small programs: compile each once, for all workers and the processes they start.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Nobody looks up in a compiled program from which line it came.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
# Most of what is left is compiling programs that then run for milliseconds: half of it is spent in the emitters for fused loops.
# An unknown flag ends the process, so this is for the version that is known to have them.
if version("jaxlib").startswith("0.10.") and "PYTEST_XDIST_WORKER" not in os.environ:  # workers inherit them
    # Two workers have a core each: threads inside a program would only be in each other's way.
    flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 --xla_cpu_multi_thread_eigen=false"
    os.environ["XLA_FLAGS"] = f"{flags} {os.environ.get('XLA_FLAGS', '')}".strip()

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def float64() -> Iterator[None]:
    """Double precision for one test; every other test stays in float32, as users run it."""
    with jax.enable_x64(True):
        yield

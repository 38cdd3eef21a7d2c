"""Shared fixtures. `tests/` itself is put on the path, so that tests can say `from helpers...`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def float64() -> Iterator[None]:
    """Double precision for one test; every other test stays in float32, as users run it."""
    with jax.enable_x64(True):
        yield

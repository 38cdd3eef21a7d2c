"""Programs in these tests run once or twice: compiling them fast matters more than running them fast."""

from __future__ import annotations

import pytest

from fedpg import simulate


@pytest.fixture(autouse=True)
def compile_quickly(monkeypatch):
    monkeypatch.setattr(simulate, "COMPILER_OPTIONS", {"cpu": {"xla_backend_optimization_level": 0}})

"""For all tests of federations: they compile longer than they run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fedpg import simulate as simulator


@pytest.fixture(autouse=True, scope="module")
def compile_quickly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(simulator.COMPILER_OPTIONS, "cpu", {"xla_backend_optimization_level": 0})
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The hundred kills, which take longest, begin first."""
    items.sort(key=lambda item: "test_kills" not in item.nodeid)

"""What the processes of a federation may cost: while the server waits, and with a policy of ten megabytes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.federation
MEASURE = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "federation_costs.py"))
SERVER = ("fedpg serve", "flower-superlink")


def test_a_server_that_waits_with_three_agents_costs_little(tmp_path):
    found = MEASURE["waiting"](tmp_path)
    assert set(found) == {*SERVER, *(f"fedpg join {agent}" for agent in range(3))}
    assert sum(found[name]["most_mb"] for name in SERVER) < 700
    assert sum(found[name]["cpu"] for name in SERVER) < 0.03


def test_four_agents_train_a_policy_of_ten_megabytes(tmp_path):
    found = MEASURE["large"](tmp_path)
    assert set(found) == {*SERVER, *(f"fedpg join {agent}" for agent in range(4))}
    assert max(one["most_mb"] for one in found.values()) < 1500, found

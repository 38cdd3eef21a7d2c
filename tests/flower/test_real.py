"""One real federation: a server and three agents in their own processes, and an environment that raises in the middle."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.real import federation


@pytest.mark.federation
def test_an_environment_that_raises_costs_its_agent_the_round_and_nobody_else(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
    orders, names = tmp_path / "orders", ("a", "b", "c")
    options = {"name": list(names), "orders": str(orders)}
    with federation(tmp_path, env="helpers.failing_env:make", env_option=options, algorithm="pavg", eval_every=2) as real:
        real.serve()
        for agent, name in enumerate(names):
            real.join(agent, "--env-option", f"name={name}", f"orders={orders}")
        # Not before it has joined: an environment that raises at once is refused before its agent connects.
        real.wait_until(lambda: real.round() >= 0 and real.is_present(1))
        orders.write_text("b:raise")
        real.wait_until(lambda: bool(real.events(1)))
        orders.unlink()
        rows = real.finish()
        last = max(event["round"] for event in real.events(1))
    assert [row["round"] for row in rows] == [0, 2, 4]
    assert all("raised RuntimeError" in event["what"] or "not finite" in event["what"] for event in real.events(1))
    assert real.events(1)
    assert not real.events(0)
    assert not real.events(2)
    assert last < 3, "agent 1 came back"
    assert rows[-1]["return_per_agent"] == [row for row in rows[-1]["return_per_agent"] if row is not None]
    assert rows[-1]["refused_messages"] > 0

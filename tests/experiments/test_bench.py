"""`fedpg bench`: what it reports, and, in full size, that training keeps up with the bare engine."""

from __future__ import annotations

import json

import pytest

from fedpg.cli import main
from fedpg.errors import UserError
from fedpg.experiments.bench import BenchOptions, bench


def test_ratios_are_to_peers_of_the_same_run(capsys):
    arguments = ["--env", "hopper", "--lanes", "4", "--agents", "2", "--horizon", "5", "--repeats", "1", "--json"]
    assert main(["bench", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    rates = found["steps_per_second"]
    assert set(found["fedpg_relative_to"]) == set(rates) - {"fedpg"}
    for peer, ratio in found["fedpg_relative_to"].items():
        assert ratio == pytest.approx(rates["fedpg"] / rates[peer], rel=0.02)
    assert found["backend"] == "batch"
    assert found["seconds_to_first_round"] > 0


def test_lanes_that_agents_cannot_share():
    with pytest.raises(UserError, match="3 agents cannot share 64 lanes evenly"):
        bench(BenchOptions(agents=3))


@pytest.mark.slow
def test_training_keeps_up_with_the_engine():
    """Policy, physics and gradients at 64 lanes: at least 70 % of the engine open-loop, twice a Gymnasium loop."""
    ratios = bench(BenchOptions(repeats=5))["fedpg_relative_to"]
    assert ratios["mujoco.rollout, open loop"] >= 0.7
    assert ratios["gymnasium loop, one environment"] >= 2.0

"""`fedpg bench`: what it reports, and, in full size, that training keeps up with the bare engine."""

import json
import os
import subprocess
import sys

import pytest

from fedpg.cli import main
from fedpg.cli.bench import BenchOptions, bench
from fedpg.errors import UserError

ENGINE = "mujoco.rollout, open loop"


@pytest.mark.slow
def test_the_ratio_is_to_the_engine_in_the_same_run(capsys):
    arguments = ["--env", "hopper", "--lanes", "4", "--agents", "2", "--horizon", "5", "--repeats", "1", "--json"]
    assert main(["bench", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    rates = found["steps_per_second"]
    assert set(rates) == {"fedpg", ENGINE}
    assert found["fedpg_relative_to"] == {ENGINE: pytest.approx(rates["fedpg"] / rates[ENGINE], rel=0.02)}
    assert (found["env"], found["lanes"], found["agents"], found["horizon"]) == ("hopper", 4, 2, 5)
    assert found["seconds_to_first_round"] > 0
    assert main(["bench", *arguments[:-1], "--no-peers"]) == 0
    shown = capsys.readouterr().out
    assert "fedpg, whole training steps" in shown
    assert ENGINE not in shown


def test_lanes_that_agents_cannot_share():
    with pytest.raises(UserError, match="3 agents cannot share 64 lanes evenly"):
        bench(BenchOptions(agents=3))


@pytest.mark.slow
def test_training_keeps_up_with_the_engine():
    """Policy, physics and gradients at 64 lanes, beside the engine open-loop: 0.58 to 0.78 on two shared cores, 0.7 on idle ones."""
    # As a user runs it: without the XLA flags that make tests compile fast.
    plain = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "fedpg", "bench", "--env", "halfcheetah", "--lanes", "64", "--json"]
    shown = [subprocess.run(command, env=plain, capture_output=True, text=True, check=True).stdout for _ in range(3)]
    ratios = [json.loads(text)["fedpg_relative_to"] for text in shown]
    assert max(one[ENGINE] for one in ratios) >= 0.6, ratios

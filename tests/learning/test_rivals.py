"""Algorithms learn CartPole with their presets, in a fifth of the rounds that `fedpg train` gives them (slow)."""

from __future__ import annotations

import pytest

from fedpg.runs.config import Config
from fedpg.runs.setup import resolve
from fedpg.runs.training import train


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    ["scaffold", "fedprox", "fast-fedpg", "mfpo", "fedavg-m", "nharpg", "fedpg-br", "fedsvrpg-s", "fedhapg-s", "pavg", "heavy-ball"],
)
def test_cartpole_is_learned_with_the_preset(algorithm, tmp_path):
    assert resolve(Config(algorithm=algorithm)).rounds == 150
    run = train(Config(env="cartpole", algorithm=algorithm, rounds=30, seeds=3), tmp_path / "run")
    assert run.rows[0]["return"] < 40
    assert min(run.rows[-1]["return_per_seed"]) > 90

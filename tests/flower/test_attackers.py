"""Three of ten agents send -2.5 times their message, between machines as in the simulator: trimmed mean and FedPG-BR hold."""

from __future__ import annotations

import pytest

from fedpg.flower.server_app import train_remotely
from fedpg.runs.config import Config
from helpers.agents import Direct, agents_of

SMALL = {"env": "random-mdp", "agents": 10, "local_steps": 4, "batch": 4, "horizon": 10, "local_lr": 0.5, "rounds": 60, "eval_every": 60}


def final_return(config: Config, attackers: int, out) -> tuple[float, float]:
    """At the beginning and at the end."""
    agents = agents_of(config) | {i: agents_of(config, attack="sign-flip")[i] for i in range(attackers)}
    rows = train_remotely(config, out, lambda terms, note: Direct(agents)).rows
    return rows[0]["return"], rows[-1]["return"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "aggregation", "holds"), [("fedsvrpg-m", "trimmed-mean", True), ("fedpg-br", "mean", True), ("fedsvrpg-m", "mean", False)]
)
def test_thirty_per_cent_that_flip_signs(algorithm, aggregation, holds, tmp_path):
    config = Config(algorithm=algorithm, aggregation=aggregation, **SMALL)
    start, clean = final_return(config, 0, tmp_path / "clean")
    _, attacked = final_return(config, 3, tmp_path / "attacked")
    assert clean > 1.5 * start
    assert (attacked > 0.9 * clean) == holds

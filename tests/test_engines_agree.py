"""Simulator and debug engine: the same state after every round, started from the same state."""

from __future__ import annotations

import pytest

from fedpg.algorithms import ALGORITHMS
from fedpg.simulate import Simulator
from fedpg.simulate_plain import Debug
from helpers.compare import assert_trees_close
from helpers.federations import SELDOM, SMALL, each, home, make

RARELY_HERE = (*SELDOM, "pavg-projected", "fednpg")
"""Besides, those whose loops (over time) are slow when nothing is compiled."""


@pytest.mark.parametrize(
    ("name", "world"),
    [
        *each(((name, home(name)) for name in ALGORITHMS), RARELY_HERE),
        *(pytest.param(name, "cartpole", marks=pytest.mark.slow) for name in ("fedsvrpg-m", "fedhapg-m")),
    ],
)
def test_round_by_round(name, world):
    """Every algorithm on random MDPs, the paper's two on CartPole as well."""
    small = SMALL[world](batch_size=1, horizon=3, baseline="time")
    algorithm = make(name, small.problem, local_steps=2)
    fast, plain = (kind(small.problem, algorithm, small.agents_of, root=7, seeds=2) for kind in (Simulator, Debug))
    fast.start()
    plain.start()
    assert_trees_close(fast.agents(), plain.agents(), rtol=1e-6)
    assert_trees_close(fast.state(), plain.state(), rtol=1e-4, atol=1e-5)
    assert fast.traffic == plain.traffic
    for round in range(2):
        plain.load(fast.state())
        fast.advance(round, 1)
        plain.advance(round, 1)
        assert_trees_close(fast.state(), plain.state(), rtol=1e-4, atol=1e-5)
    assert_trees_close(fast.evaluate(2), plain.evaluate(2), rtol=1e-4, atol=1e-4)

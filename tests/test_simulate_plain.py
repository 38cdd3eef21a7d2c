"""Simulator and plain simulator: the same state after every round, started from the same state."""

from __future__ import annotations

import jax
import pytest

from fedpg.algorithms import ALGORITHMS
from fedpg.simulate import simulator
from fedpg.simulate_plain import plain_simulator
from helpers.compare import assert_trees_close
from helpers.federations import SELDOM, SMALL, each, home, make

RARELY_HERE = (*SELDOM, "pavg-projected", "fednpg", "fapi", "fedpg-br", "fast-fedpg", "scaffold", "calm")
"""Besides, those whose loops (over time) are slow when nothing is compiled."""


@pytest.mark.parametrize(
    ("name", "task"),
    [
        *each(((name, home(name)) for name in ALGORITHMS), RARELY_HERE),
        *(pytest.param(name, "cartpole", marks=pytest.mark.slow) for name in ("fedsvrpg-m", "fedhapg-m")),
    ],
)
def test_round_by_round(name, task):
    """Every algorithm on random MDPs, the paper's two on CartPole as well."""
    small = SMALL[task](batch_size=1, horizon=3, baseline="time")
    algorithm = make(name, small.problem, local_steps=2)
    fast, plain = (engine(small.problem, algorithm, small.agents, seeds=2) for engine in (simulator, plain_simulator))
    state, other = fast.init(jax.random.key(7)), plain.init(jax.random.key(7))
    assert_trees_close(state.agents, other.agents, rtol=1e-6)
    assert_trees_close(state.rows, other.rows, rtol=1e-4, atol=1e-5)
    assert fast.communication(state) == plain.communication(other)
    for _ in range(2):
        other = other._replace(round=state.round, rows=state.rows)
        state, _ = fast.run(state, 1)
        other, _ = plain.run(other, 1)
        assert_trees_close(state.rows, other.rows, rtol=1e-4, atol=1e-5)
    assert_trees_close(fast.evaluate(state), plain.evaluate(other), rtol=1e-4, atol=1e-4)
    assert_trees_close(fast.params(state), plain.params(other), rtol=1e-4, atol=1e-5)

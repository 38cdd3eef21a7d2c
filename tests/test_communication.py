"""How many numbers travel."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fedpg.communication import measure
from helpers.federations import SMALL, make


@pytest.mark.parametrize(
    ("name", "up", "down", "start"),
    [("pavg", 1, 1, 0), ("fedsvrpg-m", 1, 3, 1), ("fedhapg-m", 1, 3, 1), ("heavy-ball", 1, 2, 0), ("local-only", 0, 0, 0)],
)
def test_numbers_by_hand(name, up, down, start):
    """In multiples of N d: three agents, 25 params. FedSVRPG-M and FedHAPG-M broadcast theta_r, theta_{r-1} and u_r."""
    small = SMALL["random-mdp"]()
    found = measure(small.problem, make(name, small.problem), small.agents(jax.random.key(0), 0))
    unit = 3 * 25
    expected = (start * unit, (down if start else 0) * unit, up * unit, down * unit, 0, bool(start), 1)
    assert found[:7] == expected
    assert found.in_bytes == (*(4 * number for number in expected[:5]), bool(start), 1, None)  # float32
    sent_up, sent_down = found.total(10, np.array([5, 7]))
    assert sent_up.tolist() == [(start + 10 * up) * unit] * 2
    assert sent_down.tolist() == [(10 * down + (down if start else 0)) * unit] * 2


def test_pooled_sends_trajectories():
    small = SMALL["random-mdp"]()
    found = measure(small.problem, make("pooled", small.problem), small.agents(jax.random.key(0), 0))
    sent_up, sent_down = found.total(10, np.array([100]))
    assert sent_up.tolist() == [300]  # state, action and reward of every step
    assert sent_down.tolist() == [0]
    assert found.in_bytes.total(10, np.array([100]))[0].tolist() == [1200]

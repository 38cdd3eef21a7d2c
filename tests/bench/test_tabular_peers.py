"""The peers of `fedpg bench tabular` do the work that they are named for."""

from __future__ import annotations

import time

import jax
import numpy as np
import pytest

from fedpg.bench import tabular_peers
from fedpg.envs.tabular import MDP, environment
from fedpg.gradients import exact
from fedpg.native import cuda
from fedpg.policies import softmax

LANES = 60


def test_scalar_c_learns() -> None:
    """J rises, and gradients of log-probabilities add up to zero in every state."""
    kernel, reward = tabular_peers.tables(LANES)
    np.testing.assert_allclose(kernel.sum(-1), 1.0, rtol=1e-6)
    params = np.zeros((LANES, 5, 5), np.float32)
    tabular_peers.scalar(LANES, 200, 50, params)()
    np.testing.assert_allclose(params.sum(-1), 0.0, atol=1e-4)
    policy = softmax(environment("small", 5, 5))
    value = jax.jit(jax.vmap(lambda q, r, logits: exact.objective(policy, {"logits": logits}, MDP(q, r, np.full(5, 0.2)), 0.9, 50)))
    gain = np.asarray(value(kernel, reward, params)) - np.asarray(value(kernel, reward, np.zeros_like(params)))
    assert gain.mean() > 0.1
    assert (gain > 0).mean() > 0.9


def test_plain_jax_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU there are two peers; a rate counts the steps of all calls."""
    found = tabular_peers.peers(LANES, 2, 5)
    assert sorted(found) == ["scalar C for PAvg, all cores", "vmap(scan) in JAX"]
    assert all(rate() > 0 for rate in found.values())
    now = iter(np.arange(0.0, 100.0, 1.0))
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    assert tabular_peers.timed(lambda: None, 10)() == 10.0


def test_sizes_of_the_bare_kernel() -> None:
    """Its shared memory holds what bare.cu keeps of a lane: transitions, rewards, params, probabilities and two sums."""
    text = (tabular_peers.SOURCES / "bare.cu").read_text()
    assert "#define WORDS (5 * CELLS + CELLS * STATES)" in text
    assert f"#define T {cuda.TILE}" in text

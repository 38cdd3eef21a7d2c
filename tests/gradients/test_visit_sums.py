"""Visit sums are those of the trajectory from the same key, in every implementation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import native
from fedpg.envs.tabular import MDP, environment
from fedpg.gradients import tabular
from fedpg.gradients.rollout import Trajectory, rollout
from fedpg.gradients.tabular import Sums, all_at_once, rollout_sums, step_by_step
from fedpg.policies import categorical, direct, softmax
from fedpg.trees import take
from helpers.compare import assert_trees_close, random_params

DISCOUNT, KEYS = 0.9, 40
WAYS = {"step_by_step": step_by_step, "all_at_once": all_at_once, "kernel": None}


def sum_only(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every device uses this implementation; a CPU uses the kernel by itself, or the first if there is none."""
    monkeypatch.setenv(native.VARIABLE, "auto" if way == "kernel" else "off")
    for name, function in WAYS.items():
        if function is not None:
            monkeypatch.setattr(tabular, name, WAYS[way] or function)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    sum_only(request.param, monkeypatch)


def random_mdp(states: int, actions: int) -> MDP:
    """Drawn by NumPy: nothing to compile. Some steps and starts are impossible."""
    rng = np.random.default_rng(states)
    kernel, start = rng.uniform(-0.5, 1.0, (states, actions, states)).clip(0.0), np.arange(1.0, states + 1)
    kernel[..., 0] += 0.1
    kernel, reward = kernel / kernel.sum(-1, keepdims=True), rng.normal(size=(states, actions))
    return MDP(*map(jnp.asarray, (kernel, reward, start / start.sum())))


def added_up(tau: Trajectory, states: int, actions: int) -> Sums:
    """The sums of one trajectory, by plain loops."""
    s, a, r = (np.asarray(x) for x in tau[:3])
    horizon, table = len(r), np.zeros((states, actions))
    visits, returns, discounted, targets = table.copy(), table.copy(), table.copy(), table[:, 0].copy()
    for t in range(horizon):
        visits[s[t], a[t]] += 1
        returns[s[t], a[t]] += sum(DISCOUNT**h * r[h] for h in range(t, horizon))
        discounted[s[t], a[t]] += DISCOUNT**t
        targets[s[t]] += sum(DISCOUNT ** (h - t) * r[h] for h in range(t, horizon))
    return Sums(visits, returns, discounted, targets, r.sum())


CASES = [(softmax, 4, 3, 9), (softmax, 3, 2, 1)]
SLOW_CASES = [(categorical, 4, 2, 7), (direct, 3, 4, 8), (softmax, 1, 3, 2), (softmax, 3, 1, 5)]
CASES += [pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_CASES]


@pytest.mark.parametrize(("make", "states", "actions", "horizon"), CASES)
def test_adds_up_the_trajectory_of_the_same_key(
    make: Callable, states: int, actions: int, horizon: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Visits exactly, sums to rounding, for every key: the same random numbers in the same order."""
    small = environment("small", states, actions)
    policy, mdp, keys = make(small), random_mdp(states, actions), jax.random.split(jax.random.key(0), KEYS)
    params = random_params(policy, 1)
    tau = jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda key: rollout(small, policy, horizon, key, params, mdp)))(keys))
    for way in WAYS:
        sum_only(way, monkeypatch)
        found = jax.jit(jax.vmap(lambda key: rollout_sums(small, policy, horizon, DISCOUNT, True, key, params, mdp)))(keys)
        found = jax.tree.map(np.asarray, found)
        for i in range(KEYS):
            wanted, one = added_up(take(tau, i), states, actions), take(found, i)
            np.testing.assert_array_equal(one.visits, wanted.visits)
            assert_trees_close(one, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("way")
def test_keeps_only_what_is_needed() -> None:
    """Without a baseline nothing is kept for one; the rest is the same."""
    small = environment("small", 3, 2)
    policy, mdp = softmax(small), random_mdp(3, 2)

    def one(valued: bool) -> Any:
        sample = functools.partial(rollout_sums, small, policy, 6, DISCOUNT, valued)
        return jax.jit(sample)(jax.random.key(3), random_params(policy, 1), mdp)

    plain, valued = one(False), one(True)
    assert (plain.discounts, plain.targets) == ((), ())
    assert_trees_close((plain.visits, plain.returns, plain.total_return), (valued.visits, valued.returns, valued.total_return), rtol=1e-6)


@pytest.mark.usefixtures("way")
def test_whole_numbers_as_rewards() -> None:
    small, mdp = environment("small", 2, 2), MDP(np.full((2, 2, 2), 0.5), np.array([[1, 1], [1, 1]]), np.array([0.5, 0.5]))
    policy = softmax(small)
    found = rollout_sums(small, policy, 3, 0.5, True, jax.random.key(0), policy.init(jax.random.key(0)), mdp)
    assert float(found.total_return) == 3.0
    assert float(jnp.sum(found.returns)) == pytest.approx(1.75 + 0.75 + 0.25)
    assert float(jnp.sum(found.targets)) == pytest.approx(1.75 + 1.5 + 1.0)

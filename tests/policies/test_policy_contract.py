"""One contract for every policy: densities that sum to 1, samples that follow them, scores with mean zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
import pytest

from fedpg.envs.base import Box, Environment
from fedpg.envs.cartpole import ENVIRONMENT as CARTPOLE
from fedpg.envs.tabular import environment
from fedpg.policies import Policy, categorical, custom, direct, gaussian, softmax
from helpers.compare import assert_frequencies, assert_trees_close, largest_difference, random_params

TINY = environment("tiny", 3, 4)
LEVER = Environment("lever", Box((3,)), Box((1,)), lambda *a: None, lambda *a: None)
GRID = np.linspace(-12.0, 12.0, 4001)
CELLS = 9
EDGES = np.linspace(-2.0, 2.0, CELLS - 1)


def tempered() -> Policy:
    """A user's own policy: a table of energies, halved, drawn with jax.random.categorical."""
    return custom(
        init=lambda key: {"energy": jax.random.normal(key, (3, 4))},
        sample=lambda key, params, s: jax.random.categorical(key, -params["energy"][s] / 2),
        log_prob=lambda params, s, a: jax.nn.log_softmax(-params["energy"][s] / 2)[a],
    )


@dataclass(frozen=True)
class Case:
    """A policy, an observation, and the actions it has: all of them, or a fine grid on the line with its spacing."""

    policy: Policy
    observation: Any
    actions: np.ndarray
    mass: float = 1.0
    tangent: Callable[[Any], Any] = lambda score: score

    @cached_property
    def init(self) -> Callable[[jax.Array], Any]:
        return jax.jit(self.policy.init)

    @cached_property
    def log_prob(self) -> Callable[..., jax.Array]:
        """log_prob of many actions at once."""
        return jax.jit(jax.vmap(self.policy.log_prob, (None, None, 0)))

    @cached_property
    def params(self) -> Any:
        """Random params."""
        return random_params(self.policy, 7)

    def density(self, params: Any) -> np.ndarray:
        return np.exp(self.log_prob(params, self.observation, self.actions)) * self.mass

    def cell(self, actions: Any) -> np.ndarray:
        actions = np.asarray(actions)
        return np.searchsorted(EDGES, actions[:, 0]) if actions.ndim > 1 else actions


def on_the_simplex(score: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The part of a score along which rows still sum to 1: the only one a table of probabilities can follow."""
    return jax.tree.map(lambda x: x - x.mean(-1, keepdims=True), score)


OBSERVATION = np.array([0.4, -1.0, 0.7, 0.2])
CASES = {
    "softmax": Case(softmax(TINY), 1, np.arange(4)),
    "direct": Case(direct(TINY), 1, np.arange(4), tangent=on_the_simplex),
    "categorical": Case(categorical(CARTPOLE, (6,)), OBSERVATION, np.arange(2)),
    "categorical on states": Case(categorical(TINY, (5,)), 2, np.arange(4)),
    "gaussian": Case(gaussian(LEVER, (6,)), OBSERVATION[:3], GRID[:, None], GRID[1] - GRID[0]),
    "custom": Case(tempered(), 1, np.arange(4)),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_densities_sum_to_one(case: Case) -> None:
    density = case.density(case.params)
    assert density.min() >= 0.0
    assert float(density.sum()) == pytest.approx(1.0, abs=1e-4)
    assert np.ptp(density) > 1e-3


def test_samples_follow_the_density(case: Case) -> None:
    """Frequencies of 5000 samples with plain keys, within binomial error of exp(log_prob)."""
    params = case.params
    keys = jax.random.split(jax.random.key(1), 5000)
    samples = jax.jit(jax.vmap(case.policy.sample, (0, None, None)))(keys, params, case.observation)
    expected = np.bincount(case.cell(case.actions), np.asarray(case.density(params)))
    expected /= expected.sum()
    assert_frequencies(np.bincount(case.cell(samples), minlength=expected.size), expected)


def test_scores_have_mean_zero(case: Case) -> None:
    """E_a[grad log pi(a|s)] = 0, though no single score is."""
    params = case.params
    scores = jax.jit(jax.vmap(jax.grad(case.policy.log_prob), (None, None, 0)))(params, case.observation, case.actions)
    scores, density = jax.tree.map(np.asarray, scores), case.density(params)
    mean = jax.tree.map(lambda x: np.tensordot(density, x, axes=1), scores)
    assert max(np.abs(x).max() for x in jax.tree.leaves(case.tangent(scores))) > 0.1
    for leaf in jax.tree.leaves(case.tangent(mean)):
        np.testing.assert_allclose(leaf, 0.0, atol=1e-3)


def test_init_is_allowed_and_depends_on_the_key_only(case: Case) -> None:
    """Same key, same params; projection leaves them where they are, and is the same done twice."""
    params = case.init(jax.random.key(0))
    assert_trees_close(case.init(jax.random.key(0)), params)
    assert_trees_close(case.policy.project(params), params, atol=1e-6)
    assert_trees_close(case.policy.project(case.params), case.params, atol=1e-6)


@pytest.mark.parametrize("name", ["categorical", "gaussian", "custom"])
def test_random_inits_differ_between_keys(name: str) -> None:
    first, second = (CASES[name].init(jax.random.key(seed)) for seed in (0, 1))
    assert largest_difference(first, second) > 1e-2


@pytest.mark.parametrize("name", ["softmax", "direct", "categorical", "categorical on states"])
def test_policies_start_almost_uniform(name: str) -> None:
    case = CASES[name]
    np.testing.assert_allclose(case.density(case.init(jax.random.key(0))), 1 / case.actions.size, rtol=0.02)


def test_gaussian_closed_form() -> None:
    """Two actions: the sum of two normal log densities around the network's mean, written out in NumPy."""
    two = LEVER._replace(action_space=Box((2,)))
    policy = gaussian(two, (6,))
    params = random_params(policy, 3)
    hidden, last = jax.tree.map(np.asarray, params["layers"])
    mean = np.tanh(OBSERVATION[:3] @ hidden["matrix"] + hidden["bias"]) @ last["matrix"] + last["bias"]
    std, action = np.exp(np.asarray(params["log_std"])), np.array([0.3, -1.2])
    expected = float(np.sum(-((action - mean) ** 2) / (2 * std**2) - np.log(std * np.sqrt(2 * np.pi))))
    assert float(policy.log_prob(params, OBSERVATION[:3], action)) == pytest.approx(expected, rel=1e-5)
    samples = jax.jit(jax.vmap(policy.sample, (0, None, None)))(jax.random.split(jax.random.key(0), 4000), params, OBSERVATION[:3])
    np.testing.assert_allclose(samples.mean(0), mean, atol=4.5 * std.max() / np.sqrt(4000))
    np.testing.assert_allclose(np.cov(samples.T), np.diag(std**2), atol=0.1 * std.max() ** 2)

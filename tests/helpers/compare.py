"""Comparisons of pytrees and of frequencies."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.policies import Policy


def assert_trees_close(actual: Any, expected: Any, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Same structure, and every leaf equal within the tolerances (exactly, if none is given)."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol)


def largest_difference(a: Any, b: Any) -> float:
    """Max over all entries of |a - b|."""
    return max(float(np.max(np.abs(np.asarray(x) - np.asarray(y)))) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def assert_frequencies(counts: np.ndarray, probabilities: np.ndarray, errors: float = 4.5) -> None:
    """Counts of each cell agree with its probability within so many binomial standard errors; impossible cells stay empty."""
    counts, probabilities = np.asarray(counts, float), np.asarray(probabilities, float)
    trials = counts.sum()
    standard_error = np.sqrt(probabilities * (1.0 - probabilities) / trials)
    assert np.all(np.abs(counts / trials - probabilities) <= errors * standard_error + 1e-12)


def tree_dot(a: Any, b: Any) -> jax.Array:
    """<a, b>, ()."""
    return sum(jax.tree.leaves(jax.tree.map(lambda x, y: (x * y).sum(), a, b)))


def normal_like(seed: int, tree: Any, scale: float = 1.0) -> Any:
    """Random pytree with the structure and shapes of `tree`, which may come from `jax.eval_shape`. Drawn by NumPy: nothing to compile."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(scale * rng.normal(size=x.shape)), tree)


def random_params(policy: Policy, seed: int, scale: float = 0.5) -> Any:
    """Params of a policy, random in every entry and allowed."""
    return policy.project(normal_like(seed, jax.eval_shape(policy.init, jax.random.key(0)), scale))

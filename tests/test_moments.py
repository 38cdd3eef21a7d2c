"""Moments against NumPy on all the data at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import moments, trees
from fedpg.moments import Moments


def test_observed_is_numpy_on_the_rows_that_count():
    values = np.random.default_rng(0).normal(5.0, 2.0, (50, 3)).astype(np.float32)
    mask = (np.arange(50) % 3 > 0).astype(np.float32)
    values[0] = np.nan  # a row that does not count is not looked at
    found, counted = moments.observed(jnp.asarray(values), jnp.asarray(mask)), values[mask > 0]
    assert float(found.count) == len(counted)
    np.testing.assert_allclose(found.mean, counted.mean(0), rtol=1e-6)
    np.testing.assert_allclose(moments.variance(found), counted.var(0), rtol=1e-5)


def test_parts_of_any_size_merge_to_the_whole():
    values = np.random.default_rng(1).normal(-3.0, 0.5, (60, 2)).astype(np.float32)
    parts = [moments.observed(jnp.asarray(part), jnp.ones(len(part))) for part in np.split(values, [1, 7, 30])]
    found = moments.merge(trees.stack([moments.nothing(2), *parts]))
    assert float(found.count) == 60
    np.testing.assert_allclose(found.mean, values.mean(0), rtol=1e-6)
    np.testing.assert_allclose(moments.variance(found), values.var(0), rtol=1e-5)


def test_a_small_spread_far_from_zero_is_not_lost():
    """Sums of squares would lose all digits in float32: 1000 +- 0.01."""
    values = 1000.0 + 0.01 * np.random.default_rng(2).normal(size=(4000, 1)).astype(np.float32)
    parts = jax.vmap(lambda part: moments.observed(part, jnp.ones(40)))(jnp.asarray(values.reshape(100, 40, 1)))
    np.testing.assert_allclose(moments.variance(moments.merge(parts)), values.astype(np.float64).var(0), rtol=0.02)


def test_nothing_merges_to_nothing():
    nothing = moments.merge(trees.stack([moments.nothing(2)] * 3))
    assert isinstance(nothing, Moments)
    assert [x.tolist() for x in nothing] == [0.0, [0.0, 0.0], [0.0, 0.0]]

"""The clipped objectives and their slopes against numbers computed by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.learners.losses import clipped_surrogate, clipped_value_loss, divergence_estimate, normalised


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        (1.1, 2.0, 2.2, 2.2),  # inside: w A, and d/d log w = w A
        (1.5, 2.0, 2.4, 0.0),  # already 20% more likely: nothing more to gain
        (0.5, 2.0, 1.0, 1.0),  # less likely by mistake: pulled back
        (0.5, -2.0, -1.6, 0.0),
        (1.5, -2.0, -3.0, -3.0),
    ],
)
def test_surrogate(ratio, advantage, value, slope, float64):
    def of(log_ratio):
        return clipped_surrogate(log_ratio[None], jnp.array([advantage]), 0.2)

    assert float(of(jnp.log(ratio))) == pytest.approx(value, rel=1e-12)
    assert float(jax.grad(of)(jnp.log(ratio))) == pytest.approx(slope, rel=1e-12)


@pytest.mark.parametrize(
    ("value", "target", "loss", "slope"),
    [
        (1.1, 2.0, 0.5 * 0.9**2, -0.9),  # within 0.2 of the old value 1
        (1.5, 2.0, 0.5 * 0.8**2, 0.0),  # moved far enough towards its target: the clipped loss is larger and flat
        (0.5, 2.0, 0.5 * 1.5**2, -1.5),  # moved the wrong way: pulled back
    ],
)
def test_value_loss(value, target, loss, slope, float64):
    def of(v, clip):
        return clipped_value_loss(v[None], jnp.ones(1), jnp.array([target]), clip)

    assert float(of(jnp.asarray(value), 0.2)) == pytest.approx(loss, rel=1e-12)
    assert float(jax.grad(of)(jnp.asarray(value), 0.2)) == pytest.approx(slope, abs=1e-12)
    assert float(jax.grad(of)(jnp.asarray(value), 0.0)) == pytest.approx(value - target, rel=1e-12)


def test_divergence_and_normalisation(float64):
    p, q = np.array([0.5, 0.5]), np.array([0.25, 0.75])
    drawn = np.repeat([0, 1], 500)  # as often as the old policy p acts
    assert float(divergence_estimate(jnp.asarray(np.log(q / p)[drawn]))) == pytest.approx((p * np.log(p / q)).sum(), rel=1e-12)
    found = np.asarray(normalised(jnp.array([1.0, 2.0, 6.0])))
    np.testing.assert_allclose(found, (np.array([1.0, 2.0, 6.0]) - 3.0) / np.sqrt(14 / 3), rtol=1e-7)

"""Calls into Python: axes that `vmap` adds, several results, and memory that outlives the call."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.gradients.host_call import host_call


def test_vmap_adds_axes_to_all_arguments_and_results():
    calls = []

    def function(x, y):
        calls.append((x, y))
        return x.sum(-1), (x * y[..., None]).astype(np.float32)

    shapes = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((3,), jnp.float32)
    x, y = jnp.arange(12.0).reshape(2, 2, 3), jnp.array([1.0, 10.0])
    one = lambda x, y: host_call(function, shapes, x, y)  # noqa: E731
    total, product = jax.jit(jax.vmap(jax.vmap(one, (0, None)), (1, 0)))(x, y)
    moved = np.moveaxis(np.asarray(x), 1, 0)
    np.testing.assert_array_equal(total, moved.sum(-1))
    np.testing.assert_array_equal(product, moved * np.array([1.0, 10.0])[:, None, None])
    assert len(calls) == 1
    assert all(isinstance(given, np.ndarray) for given in calls[0])
    kept = calls[0][0].copy()
    jax.jit(jax.vmap(jax.vmap(one, (0, None)), (1, 0)))(x + 5, y)
    np.testing.assert_array_equal(calls[0][0], kept)

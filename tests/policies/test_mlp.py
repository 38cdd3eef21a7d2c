"""Networks: how they start."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.policies.mlp import init_layers


def test_no_batch_of_matrices_is_factorised():
    """Several such batches at once can take all threads of JAX on a CPU, which then wait for each other for ever."""

    def init(key):
        return [init_layers(jax.random.fold_in(key, i), [4, 64, 64, 2], 0.01) for i in range(2)]

    keys = jax.random.split(jax.random.key(0), 8)
    text = jax.jit(jax.vmap(init)).trace(keys).lower(lowering_platforms=("cpu",)).as_text()
    factorised = re.findall(r"@lapack_sgeqrf.*?: \(tensor<([0-9x]+)xf32>", text)
    assert factorised
    assert all(shape.count("x") == 1 for shape in factorised)
    for layer in jax.vmap(init)(keys)[0][:2]:
        short = np.asarray(jnp.einsum("bij,bkj->bik", layer["matrix"], layer["matrix"]))[:, :4, :4]
        np.testing.assert_allclose(short, np.broadcast_to(2.0 * np.eye(4), short.shape), atol=1e-5)

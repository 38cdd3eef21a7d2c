"""Packed messages against NumPy: what is read is what was sent, and nothing that is not finite gets lost."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fedpg.algorithms.wrappers.packing import Half, Sparse, from_half, from_sparse, to_half, to_sparse

from fedpg import trees
from fedpg.algorithms.wrappers import attack as attacks
from fedpg.algorithms.wrappers import observation_scaling as observations
from fedpg.moments import Moments
from helpers.compare import assert_trees_close

ROUND_TRIP = {"float16": (to_half, from_half), "top-k": (lambda message: to_sparse(message, 0.3), from_sparse)}
PACKED = pytest.mark.parametrize("kind", ROUND_TRIP)
RNG = np.random.default_rng(0)
MESSAGE = {
    "a": jnp.asarray(RNG.normal(size=(3, 4))),
    "count": jnp.arange(3),
    "b": jnp.asarray(1e-3 * RNG.normal(size=5)),
    "c": jnp.zeros(()),
}


def test_float16_is_within_half_a_step_of_every_leaf_and_never_overflows():
    big = MESSAGE | {"a": 1e30 * MESSAGE["a"]}
    packed = to_half(big)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(packed.message)} == {"float16", "int32"}
    np.testing.assert_allclose(packed.scale, [np.abs(big[name]).max() for name in ("a", "b", "c")], rtol=1e-6)
    read = from_half(packed, big)
    for name in "abc":
        largest = float(jnp.max(jnp.abs(big[name])))
        np.testing.assert_allclose(read[name], big[name], rtol=0, atol=largest * 2.0**-12 * 1.001)
        assert read[name].dtype == big[name].dtype
    np.testing.assert_array_equal(read["count"], MESSAGE["count"])


def test_top_k_sends_the_largest_entries_of_the_whole_message():
    packed = to_sparse(MESSAGE, 0.3)
    flat = np.concatenate([np.ravel(MESSAGE[name]) for name in "abc"])
    largest = np.argsort(-np.abs(flat))[:6]  # ceil(0.3 * 18)
    assert packed.index.dtype == jnp.int32
    assert set(packed.index.tolist()) == set(largest.tolist())
    expected = np.where(np.isin(np.arange(18), largest), flat, 0.0)
    read = from_sparse(packed, MESSAGE)
    np.testing.assert_array_equal(np.concatenate([np.ravel(read[name]) for name in "abc"]), expected.astype(np.float32))
    np.testing.assert_array_equal(read["count"], MESSAGE["count"])
    assert_trees_close(from_sparse(to_sparse(MESSAGE, 1.0), MESSAGE), MESSAGE)


@PACKED
@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_what_is_not_finite_stays_so(kind, bad):
    """Wherever it is: it must be refused, and not be left out as if it were small."""
    pack, unpack = ROUND_TRIP[kind]
    message = MESSAGE | {"b": MESSAGE["b"].at[2].set(bad)}
    packed = pack(message)
    assert not bool(trees.all_finite(packed))
    assert not bool(trees.all_finite(unpack(packed, message)))


def test_a_packed_message_is_no_larger_than_its_numbers_whoever_made_it():
    liar = Half({"a": jnp.full(3, 60000.0, jnp.float16)}, jnp.array([2.0]))
    np.testing.assert_array_equal(from_half(liar, {"a": jnp.zeros(3)})["a"], 2.0)
    liar = Sparse(jnp.array([1, 1, 99]), jnp.array([5.0, 5.0, 7.0]), {"a": ()})
    np.testing.assert_array_equal(from_sparse(liar, {"a": jnp.zeros(3)})["a"], [0.0, 5.0, 0.0])


@PACKED
def test_moments_and_dice_travel_as_they_are(kind):
    pack, unpack = ROUND_TRIP[kind]
    seen = Moments(jnp.array(1e6), jnp.array([3.3, 1.1]), jnp.array([1e5, 2e-5]))
    whole = observations.Message(attacks.Message({"logits": MESSAGE["a"]}, jnp.array([7, 8], jnp.uint32)), seen)
    read = unpack(pack(whole), whole)
    assert_trees_close((read.seen, read.inner.seed), (seen, whole.inner.seed))
    assert 0 < float(jnp.max(jnp.abs(read.inner.inner["logits"] - MESSAGE["a"]))) < 1.0

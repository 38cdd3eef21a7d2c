"""Encoded messages against NumPy, error feedback against its recursion, and its purpose: nothing is lost, it only arrives later."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import communication, trees
from fedpg.algorithms.base import Algorithm, exchanges_of, with_exchanges
from fedpg.algorithms.wrappers import chain, compressed
from fedpg.algorithms.wrappers.attack import AttackedMessage
from fedpg.algorithms.wrappers.compression import (
    KINDS,
    Float16,
    TopK,
    decode_float16,
    decode_top_k,
    encode_float16,
    encode_top_k,
)
from fedpg.algorithms.wrappers.observation_scaling import MessageWithMoments
from fedpg.errors import UserError
from fedpg.moments import Moments
from fedpg.quadratic import Bowl
from helpers.compare import assert_trees_close
from helpers.federations import bowl, make, rl, run
from helpers.loops import Bowls, walk

CODECS = {"float16": (encode_float16, decode_float16), "top-k": (lambda message: encode_top_k(message, 0.3), decode_top_k)}
EACH = pytest.mark.parametrize("kind", CODECS)
RNG = np.random.default_rng(0)
MESSAGE = {
    "a": jnp.asarray(RNG.normal(size=(3, 4))),
    "count": jnp.arange(3),
    "b": jnp.asarray(1e-3 * RNG.normal(size=5)),
    "c": jnp.zeros(()),
}


def test_float16_is_within_half_a_step_of_every_leaf_and_never_overflows():
    big = MESSAGE | {"a": 1e30 * MESSAGE["a"]}
    encoded = encode_float16(big)
    assert {leaf.dtype.name for leaf in jax.tree.leaves((encoded.leaves, encoded.others))} == {"float16", "int32"}
    np.testing.assert_allclose(encoded.scale, [np.abs(big[name]).max() for name in ("a", "b", "c")], rtol=1e-6)
    read = decode_float16(encoded, big)
    for name in "abc":
        largest = float(jnp.max(jnp.abs(big[name])))
        np.testing.assert_allclose(read[name], big[name], rtol=0, atol=largest * 2.0**-12 * 1.001)
        assert read[name].dtype == big[name].dtype
    np.testing.assert_array_equal(read["count"], MESSAGE["count"])


def test_top_k_sends_the_largest_entries_of_the_whole_message():
    encoded = encode_top_k(MESSAGE, 0.3)
    flat = np.concatenate([np.ravel(MESSAGE[name]) for name in "abc"])
    largest = np.argsort(-np.abs(flat))[:6]  # ceil(0.3 * 18)
    assert encoded.index.dtype == jnp.int32
    assert set(encoded.index.tolist()) == set(largest.tolist())
    expected = np.where(np.isin(np.arange(18), largest), flat, 0.0)
    read = decode_top_k(encoded, MESSAGE)
    np.testing.assert_array_equal(np.concatenate([np.ravel(read[name]) for name in "abc"]), expected.astype(np.float32))
    np.testing.assert_array_equal(read["count"], MESSAGE["count"])
    assert_trees_close(decode_top_k(encode_top_k(MESSAGE, 1.0), MESSAGE), MESSAGE)


@EACH
@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_what_is_not_finite_stays_so(kind, bad):
    """Wherever it is: it must be refused, and not be left out as if it were small."""
    encode, decode = CODECS[kind]
    message = MESSAGE | {"b": MESSAGE["b"].at[2].set(bad)}
    encoded = encode(message)
    assert not bool(trees.all_finite(encoded))
    assert not bool(trees.all_finite(decode(encoded, message)))


def test_a_forged_message_is_no_larger_than_its_numbers():
    forged = Float16([jnp.full(3, 60000.0, jnp.float16)], jnp.array([2.0]), [])
    np.testing.assert_array_equal(decode_float16(forged, {"a": jnp.zeros(3)})["a"], 2.0)
    forged = TopK(jnp.array([1, 1, 99]), jnp.array([5.0, 5.0, 7.0]), [])
    np.testing.assert_array_equal(decode_top_k(forged, {"a": jnp.zeros(3)})["a"], [0.0, 5.0, 0.0])


@EACH
def test_moments_and_attack_keys_are_sent_as_they_are(kind):
    encode, decode = CODECS[kind]
    seen = Moments(jnp.array(1e6), jnp.array([3.3, 1.1]), jnp.array([1e5, 2e-5]))
    whole = MessageWithMoments(AttackedMessage({"logits": MESSAGE["a"]}, jnp.array([7, 8], jnp.uint32)), seen)
    read = decode(encode(whole), whole)
    assert_trees_close((read.seen, read.inner.attack_key), (seen, whole.inner.attack_key))
    assert 0 < float(jnp.max(jnp.abs(read.inner.inner["logits"] - MESSAGE["a"]))) < 1.0


def feedback(state, x, keep):
    """One step of error feedback in NumPy: what is sent of x, and what stays."""
    x = x + state
    kept = np.argsort(-np.abs(x), kind="stable")[:keep]
    sent = np.where(np.isin(np.arange(x.size), kept), x, 0.0)
    return sent, x - sent


def test_fast_fedpg_by_hand(float64):
    """Two exchanges a round, a residual for each; agents remember what they meant, not what they sent."""
    small = bowl()
    ran = run(small, chain(make("fast-fedpg", small.problem, local_lr=0.1), compressed("top-k", 0.5)), 4)
    b, theta = Bowls(trees.take(ran.state.agents, 0)), np.zeros(4)
    first, second = [np.zeros(4)] * 3, [np.zeros(4)] * 3
    for _ in range(4):
        told, own = [None] * 3, [b.g(i, theta) for i in b.all]
        for i in b.all:
            told[i], first[i] = feedback(first[i], own[i], 2)
        common, moved = np.mean(told, axis=0), [None] * 3
        for i in b.all:
            end, _ = walk(theta, lambda th, k, i=i, common=common, own=own: b.g(i, th) + common - own[i], steps=3, eta=0.1)
            moved[i], second[i] = feedback(second[i], end - theta, 2)
        theta = theta + np.mean(moved, axis=0)
    np.testing.assert_allclose(ran.shared.params[0], theta, rtol=1e-12)
    assert_trees_close([x[0][0] for x in ran.state.rows.agents.residual], [np.array(first), np.array(second)], atol=1e-12)


def without_feedback(algorithm: Algorithm, keep: float) -> Algorithm:
    """Top-k without feedback."""

    def cut(exchange):
        def local_update(*args):
            message, state, info = exchange.local_update(*args)
            return decode_top_k(encode_top_k(message, keep), message), state, info

        return exchange._replace(local_update=local_update)

    return with_exchanges(algorithm, [cut(exchange) for exchange in exchanges_of(algorithm)])


def rest(small, algorithm, rounds=400, last=50):
    """Where a federation comes to rest: the mean of its last params, and their largest distance from it."""
    ran = run(small, algorithm, rounds - last)
    state, seen = ran.state, []
    for _ in range(last):
        state, _ = ran.sim.run(state, 1)
        seen.append(np.asarray(state.rows.server.shared.params[0]))
    return np.mean(seen, axis=0), np.abs(seen - np.mean(seen, axis=0)).max()


@pytest.mark.parametrize("name", ["pavg", "calm", *(pytest.param(name, marks=pytest.mark.slow) for name in ("scaffold", "mfpo"))])
def test_with_feedback_it_comes_to_rest_where_it_would_without_compression(name, float64):
    """One entry in four is sent. Forgotten entries leave every algorithm elsewhere, some for good."""
    small = bowl()
    algorithm = make(name, small.problem, local_lr=0.05, local_steps=2)
    there, _ = rest(small, algorithm, last=1)
    found, apart = rest(small, chain(algorithm, compressed("top-k", 0.25)))
    lost, _ = rest(small, without_feedback(algorithm, 0.25), last=1)
    assert np.linalg.norm(found - there) < 0.01
    assert apart < 0.1
    assert np.linalg.norm(lost - there) > 0.1


@pytest.mark.parametrize("name", ["fedavg-m", "fedsvrpg-m", "heavy-ball", "pavg"])
def test_the_predicted_message_is_that_of_agents_without_a_gradient(name, float64):
    """On a plane every gradient is 0, and an agent moves along the direction it was sent."""
    small = bowl()
    algorithm = make(name, small.problem)
    server, agent_state = algorithm.init(jnp.zeros(4))
    shared = server.shared._replace(**({} if name == "pavg" else {"direction": jnp.arange(1.0, 5.0)}))
    message, _, _ = algorithm.local_update(jax.random.key(0), shared, agent_state, Bowl(jnp.zeros((4, 4)), jnp.zeros(4)))
    np.testing.assert_allclose(algorithm.predicted(shared), message, rtol=1e-12)
    assert bool(jnp.any(message)) == (name != "pavg")


def test_a_refused_message_leaves_the_residual_as_it_was():
    small = bowl(noise=0.3)
    ran = run(small, chain(make("scaffold", small.problem), compressed("top-k", 0.2)), 2)
    before = ran.state.rows
    variate = before.agents.inner.variate.at[:, 1].set(jnp.nan)
    broken = before._replace(agents=before.agents._replace(inner=before.agents.inner._replace(variate=variate)))
    after, _ = ran.sim.run(ran.state._replace(rows=broken), 1)
    old, new = before.agents.residual[0][0], after.rows.agents.residual[0][0]
    np.testing.assert_array_equal(after.rows.refused[0], [0, 1, 0])
    np.testing.assert_array_equal(old[0, 1], new[0, 1])
    assert np.abs(old[0, 1]).max() > 0
    assert (old[0, np.array([0, 2])] != new[0, np.array([0, 2])]).any()
    assert np.isfinite(after.rows.server.shared.params).all()


def test_numbers_on_the_wire():
    """Of 4 params 2 values and 2 places, or 4 and the scale of their one leaf. The warm-up is as ever."""
    small = bowl()
    algorithm, agents = make("fedsvrpg-m", small.problem), Bowl(np.zeros((3, 4, 4)), np.zeros((3, 4)))
    sizes = [communication.measure(small.problem, chain(algorithm, compressed(kind, 0.3)), agents) for kind in KINDS]
    assert [(found.start_up, found.round_up) for found in sizes] == [(12, 12), (12, 15), (12, 12)]


@pytest.mark.parametrize("name", ["pavg", "scaffold", "mfpo", "nharpg", "fednpg"])
def test_the_server_knows_the_shapes_of_encoded_messages(name):
    """Of every kind of message that there is."""
    small = rl("random-mdp")
    algorithm = chain(make(name, small.problem), compressed("top-k"))
    server, agent_state = algorithm.init({"logits": np.zeros((5, 5), np.float32)})
    mdp = jax.eval_shape(lambda: trees.take(small.agents(jax.random.key(1)), 0))
    sent, after, _ = jax.eval_shape(algorithm.local_update, jax.random.key(2), server.shared, agent_state, mdp)
    for found, expected in ((sent, algorithm.predicted(server.shared)), (after, agent_state)):
        assert jax.tree.map(lambda x: (x.shape, x.dtype), found) == jax.tree.map(lambda x: (x.shape, x.dtype), expected)


def test_off_is_the_algorithm_itself_and_what_makes_no_sense_is_refused():
    small = rl("random-mdp")
    algorithm = make("pavg", small.problem)
    assert chain(algorithm, compressed("none")) is algorithm
    for name, kind, keep, said in (
        ("pavg", "zip", 0.1, "unknown compression 'zip'"),
        ("pavg", "top-k", 0.0, "give a number above 0 and at most 1, not 0.0"),
        ("local-only", "top-k", 0.1, "local-only sends no messages: leave out --compression"),
        ("fapi", "top-k", 0.1, "the messages of fapi do not add up, so no part of one can be sent later: use --compression float16"),
    ):
        with pytest.raises(UserError, match=said):
            chain(make(name, small.problem), compressed(kind, keep))

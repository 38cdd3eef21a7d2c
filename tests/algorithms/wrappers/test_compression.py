"""Error feedback against its recursion, and what it is for: nothing is lost, it only comes later."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import communication as traffic
from fedpg import simulate as simulator
from fedpg import trees
from fedpg.algorithms.base import Algorithm, exchanges_of, with_exchanges
from fedpg.algorithms.wrappers.compression import KINDS, compressed
from fedpg.algorithms.wrappers.packing import from_sparse, to_sparse
from fedpg.errors import UserError
from fedpg.quadratic import Bowl
from fedpg.simulate import Simulator
from helpers.compare import assert_trees_close
from helpers.federations import bowl, make, rl
from helpers.loops import Bowls, walk


@pytest.fixture(autouse=True)
def compile_quickly(monkeypatch):
    monkeypatch.setattr(simulator, "COMPILER_OPTIONS", {"cpu": {"xla_backend_optimization_level": 0}})


def feedback(state, x, keep):
    """One step of error feedback in NumPy: what is sent of x, and what stays."""
    x = x + state
    kept = np.argsort(-np.abs(x), kind="stable")[:keep]
    sent = np.where(np.isin(np.arange(x.size), kept), x, 0.0)
    return sent, x - sent


def test_fast_fedpg_by_hand(float64):
    """Two exchanges a round, a residual for each; agents remember what they meant, not what they sent."""
    small = bowl()
    engine = Simulator(small.problem, compressed(make("fast-fedpg", small.problem, local_lr=0.1), "top-k", 0.5), small.agents)
    engine.start()
    engine.advance(0, 4)
    b, theta = Bowls(trees.take(engine.agents(), 0)), np.zeros(4)
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
    state = engine.state()
    np.testing.assert_allclose(state.server.shared.params[0], theta, rtol=1e-12)
    assert_trees_close([x[0][0] for x in state.agents.residual], [np.array(first), np.array(second)], atol=1e-12)


def forgetful(algorithm: Algorithm, keep: float) -> Algorithm:
    """Top-k without feedback."""

    def cut(exchange):
        def local_update(*args):
            message, state, info = exchange.local_update(*args)
            return from_sparse(to_sparse(message, keep), message), state, info

        return exchange._replace(local_update=local_update)

    return with_exchanges(algorithm, [cut(exchange) for exchange in exchanges_of(algorithm)])


def rest(small, algorithm, rounds=400, last=50):
    """Where a federation comes to rest: the mean of its last params, and their largest distance from it."""
    engine = Simulator(small.problem, algorithm, small.agents)
    engine.start()
    engine.advance(0, rounds - last)
    seen = []
    for round in range(rounds - last, rounds):
        engine.advance(round, 1)
        seen.append(engine.state().server.shared.params[0])
    return np.mean(seen, axis=0), np.abs(seen - np.mean(seen, axis=0)).max()


@pytest.mark.parametrize("name", ["pavg", "fedsvrpg-s", *(pytest.param(name, marks=pytest.mark.slow) for name in ("scaffold", "mfpo"))])
def test_with_feedback_it_comes_to_rest_where_it_would_without_compression(name, float64):
    """One entry in four is sent. Forgotten entries leave every algorithm elsewhere, and drive fedsvrpg-s away for good."""
    small = bowl()
    algorithm = make(name, small.problem, local_lr=0.05, local_steps=2)
    there, _ = rest(small, algorithm, last=1)
    found, apart = rest(small, compressed(algorithm, "top-k", 0.25))
    lost, _ = rest(small, forgetful(algorithm, 0.25), last=1)
    assert np.linalg.norm(found - there) < 0.01
    assert apart < 0.1
    assert np.linalg.norm(lost - there) > 0.1


@pytest.mark.parametrize("name", ["fedsvrpg-s", "fedhapg-s", "fedsvrpg-m", "heavy-ball", "pavg"])
def test_what_the_server_expects_is_the_message_of_agents_that_have_nothing_to_say(name, float64):
    """On a plane every gradient is 0, and an agent walks along what it was told."""
    small = bowl()
    algorithm = make(name, small.problem)
    server, agent_state = algorithm.init(jnp.zeros(4))
    shared = server.shared._replace(**({} if name == "pavg" else {"direction": jnp.arange(1.0, 5.0)}))
    message, _, _ = algorithm.local_update(jax.random.key(0), shared, agent_state, Bowl(jnp.zeros((4, 4)), jnp.zeros(4)))
    np.testing.assert_allclose(algorithm.message(shared), message, rtol=1e-12)
    assert bool(jnp.any(message)) == (name != "pavg")


def test_a_refused_message_leaves_the_residual_as_it_was():
    small = bowl(noise=0.3)
    engine = Simulator(small.problem, compressed(make("scaffold", small.problem), "top-k", 0.2), small.agents)
    engine.start()
    engine.advance(0, 2)
    before = engine.state()
    variate = before.agents.inner.variate.copy()
    variate[:, 1] = np.nan
    engine.load(before._replace(agents=before.agents._replace(inner=before.agents.inner._replace(variate=variate))))
    engine.advance(2, 1)
    old, new = before.agents.residual[0][0], engine.state().agents.residual[0][0]
    np.testing.assert_array_equal(engine.state().refused[0], [0, 1, 0])
    np.testing.assert_array_equal(old[0, 1], new[0, 1])
    assert np.abs(old[0, 1]).max() > 0
    assert (old[0, [0, 2]] != new[0, [0, 2]]).any()
    assert np.isfinite(engine.state().server.shared.params).all()


def test_numbers_on_the_wire():
    """Of 4 params 2 values and 2 places, or 4 and the scale of their one leaf. The warm-up is as ever."""
    small = bowl()
    algorithm, agents = make("fedsvrpg-m", small.problem), Bowl(np.zeros((3, 4, 4)), np.zeros((3, 4)))
    sizes = [traffic.measure(small.problem, compressed(algorithm, kind, 0.3), agents) for kind in KINDS]
    assert [(found.start_up, found.round_up) for found in sizes] == [(12, 12), (12, 15), (12, 12)]


@pytest.mark.parametrize("name", ["pavg", "scaffold", "mfpo", "nharpg", "fednpg"])
def test_the_server_knows_what_it_will_be_sent_packed(name):
    """Of every kind of message that there is."""
    small = rl("random-mdp")
    algorithm = compressed(make(name, small.problem), "top-k")
    server, agent_state = algorithm.init({"logits": np.zeros((5, 5), np.float32)})
    mdp = jax.eval_shape(lambda: trees.take(small.agents(jax.random.key(1)), 0))
    sent, after, _ = jax.eval_shape(algorithm.local_update, jax.random.key(2), server.shared, agent_state, mdp)
    for found, expected in ((sent, algorithm.message(server.shared)), (after, agent_state)):
        assert jax.tree.map(lambda x: (x.shape, x.dtype), found) == jax.tree.map(lambda x: (x.shape, x.dtype), expected)


def test_off_is_the_algorithm_itself_and_what_makes_no_sense_is_refused():
    small = rl("random-mdp")
    algorithm = make("pavg", small.problem)
    assert compressed(algorithm, "none") is algorithm
    for name, kind, keep, said in (
        ("pavg", "zip", 0.1, "unknown compression 'zip'"),
        ("pavg", "top-k", 0.0, "give a number above 0 and at most 1, not 0.0"),
        ("local-only", "top-k", 0.1, "local-only sends no messages: leave out --compression"),
        ("fapi", "top-k", 0.1, "fapi sends probabilities, of which none can be left out: use --compression float16"),
    ):
        with pytest.raises(UserError, match=said):
            compressed(make(name, small.problem), kind, keep)

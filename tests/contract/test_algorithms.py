"""One table: every algorithm through the same contract, on several problems."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import simulate as simulator
from fedpg import trees
from fedpg.algorithms import ALGORITHMS
from fedpg.algorithms.base import exchanges_of
from fedpg.rounds import participants
from fedpg.simulate import Simulator
from helpers.compare import assert_trees_close, normal_like
from helpers.federations import EXACT, SELDOM, SMALL, claims, each, home, make

EVERY = pytest.mark.parametrize("name", each(ALGORITHMS))
OFTEN = pytest.mark.parametrize("name", each(ALGORITHMS, SELDOM))
FEDERATED = pytest.mark.parametrize("name", each(name for name in ALGORITHMS if name not in ("pooled", "local-only")))
WORLDS = [world for world in SMALL if world != "direct"]  # which has a test of its own
BATCHES_PER_STEP = {"nharpg": 2} | dict.fromkeys(EXACT, 0)
"""Batches that a local step draws, where it is not one."""
QUICKLY = {"xla_backend_optimization_level": 0}
"""These programs run once: compiling them takes longer than anything they do."""


@pytest.fixture(autouse=True)
def compile_quickly(monkeypatch):
    monkeypatch.setattr(simulator, "COMPILER_OPTIONS", {"cpu": QUICKLY})


@functools.cache
def federation(name, world, **settings):
    """A problem and an algorithm that several tests share, so that its local update is traced once for all of them."""
    small = SMALL[world]()
    return small, make(name, small.problem, **settings)


@functools.cache
def together(local_update):
    """A local update for all agents at once."""
    return jax.jit(jax.vmap(local_update, (0, None, 0, 0)), compiler_options=QUICKLY)


def one_round(algorithm, small, key, agents, weights=None, order=None):
    """A round by hand from theta_0: server state before and after, messages, agent states, infos."""
    members = participants(algorithm, agents)
    count = jax.tree.leaves(members)[0].shape[0]
    order = jnp.arange(count) if order is None else order
    server, agent_state = algorithm.init(small.problem.init_params(key))
    states = trees.broadcast(agent_state, count)
    for exchange in exchanges_of(algorithm):
        keys = jax.random.split(key, count)[order]
        messages, states, infos = together(exchange.local_update)(keys, server.shared, states, trees.take(members, order))
        declared = jax.tree.map(lambda x: (x.shape, x.dtype), exchange.message(server.shared))
        assert declared == jax.tree.map(lambda x: (x.shape[1:], x.dtype), messages), "the message is not what its exchange says"
        before = server
        server, _ = exchange.aggregate(server, messages, jnp.ones(count) if weights is None else weights)
    if algorithm.server_update is not None:
        server, _ = jax.jit(algorithm.server_update, compiler_options=QUICKLY)(key, server, agents)
    return before, server, messages, states, agent_state, infos


AWAY = [(name, world) for name in ALGORITHMS for world in WORLDS if claims(name, world) and world != home(name)]


@pytest.mark.parametrize(("name", "world"), each((name, home(name)) for name in ALGORITHMS) + each(AWAY, SELDOM))
def test_shapes_and_types_survive_a_round(name, world):
    small, algorithm = federation(name, world)
    before, after, _, states, agent_state, infos = one_round(algorithm, small, jax.random.key(0), small.agents(jax.random.key(1)))
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype), before)
    assert shapes == jax.tree.map(lambda x: (x.shape, x.dtype), after)
    assert jax.tree.map(lambda x: x.shape[1:], states) == jax.tree.map(jnp.shape, agent_state)
    assert bool(trees.all_finite((after, states)))
    batch = 1 if world == "bowl" else 2
    # agents, local steps, trajectories per local step
    assert int(infos.usage.trajectories.sum()) == 3 * 3 * batch * BATCHES_PER_STEP.get(name, 1)


@EVERY
def test_params_move_and_a_personal_algorithm_moves_only_agents(name):
    small, algorithm = federation(name, home(name))
    before, after, messages, states, agent_state, _ = one_round(algorithm, small, jax.random.key(0), small.agents(jax.random.key(1)))
    deployed = algorithm.deployed(after.shared, trees.take(states, 0))
    assert float(trees.norm_sq(trees.subtract(deployed, algorithm.deployed(before.shared, agent_state)))) > 0
    assert (trees.size(messages) == 0) == algorithm.personal


@FEDERATED
def test_permuting_the_agents_leaves_the_server_unchanged(name):
    small, algorithm = federation(name, home(name))
    key, agents = jax.random.key(0), small.agents(jax.random.key(1))
    straight, turned = (one_round(algorithm, small, key, agents, order=order)[1] for order in (None, jnp.array([2, 0, 1])))
    assert_trees_close(straight, turned, rtol=1e-4, atol=1e-6)


@FEDERATED
def test_weight_zero_is_absent(name):
    """An agent of weight 0 has no say, whatever it sent, and params move as they would without it."""
    small, algorithm = federation(name, home(name))
    server, agent_state = algorithm.init(small.problem.init_params(jax.random.key(0)))
    agent = trees.take(small.agents(jax.random.key(1)), 0)
    shape = jax.eval_shape(lambda key: algorithm.local_update(key, server.shared, agent_state, agent)[0], jax.random.key(2))
    sent = [normal_like(seed, shape) for seed in (1, 2, 3)]
    nothing = jax.tree.map(lambda x: x * jnp.nan, sent[2])
    two = jnp.array([1.0, 1.0, 0.0])
    absent, silent = (algorithm.aggregate(server, trees.stack([*sent[:2], last]), two)[0] for last in (sent[2], nothing))
    assert_trees_close(silent, absent)
    without, _ = algorithm.aggregate(server, trees.stack(sent[:2]), jnp.ones(2))
    assert_trees_close(algorithm.deployed(absent.shared, ()), algorithm.deployed(without.shared, ()), rtol=1e-6)


@OFTEN
@pytest.mark.parametrize(("world", "agents", "steps"), [("random-mdp", 1, 1), ("bowl", 1, 3), ("bowl", 3, 1)])
def test_edge_sizes(name, world, agents, steps):
    small = SMALL[world if claims(name, world) else home(name)](agents=agents)
    engine = Simulator(small.problem, make(name, small.problem, agents=agents, local_steps=steps), small.agents, seeds=2)
    engine.start()
    engine.advance(0, 2)
    engine.advance(2, 2)
    assert (engine.state().failed == -1).all()
    assert engine.compilations == {"start": 1, "advance": 1, "evaluate": 0}


@OFTEN
def test_float64(name, float64):
    small = SMALL[home(name)]()
    engine = Simulator(small.problem, make(name, small.problem), small.agents, seeds=1)
    engine.start()
    engine.advance(0, 2)
    params = jax.tree.leaves((engine.state().server.shared, engine.state().agents))
    assert {x.dtype for x in params} == {np.dtype("float64")}


@pytest.mark.parametrize("name", each((name for name in ALGORITHMS if claims(name, "direct")), SELDOM))
def test_direct_policies_stay_on_the_simplex(name):
    small, algorithm = federation(name, "direct", local_lr=0.5)
    _, after, _, states, _, _ = one_round(algorithm, small, jax.random.key(0), small.agents(jax.random.key(1)))
    rows = algorithm.deployed(after.shared, trees.take(states, 0))["probabilities"]
    np.testing.assert_allclose(rows.sum(-1), 1.0, atol=1e-5)
    assert float(rows.min()) > 0
    assert bool(trees.all_finite((after, states)))

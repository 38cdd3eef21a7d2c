"""One table: every algorithm through the same contract, on several problems."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import simulate, trees
from fedpg.algorithms import ALGORITHMS
from fedpg.algorithms.base import exchanges_of
from fedpg.rounds import participants
from helpers.compare import assert_trees_close, normal_like
from helpers.federations import EXACT, OWN, SELDOM, SMALL, claims, each, home, make, run

NAMES = [*ALGORITHMS, OWN]
EVERY = pytest.mark.parametrize("name", each(NAMES))
SMALLEST = ("fedsvrpg-m", "fedhapg-m", "pavg", "scaffold")
"""Algorithms that run at the smallest sizes in `make test`; the others only in `make test-slow`."""
FEDERATED = pytest.mark.parametrize("name", each(name for name in NAMES if name not in ("pooled", "local-only")))
WORLDS = tuple(SMALL)
BATCHES_PER_STEP = {"nharpg": 2} | dict.fromkeys(EXACT, 0)
"""Batches that a local step draws, where it is not one."""
QUICKLY = {"xla_backend_optimization_level": 0}
"""These programs run once: compiling them takes longer than anything they do."""


@pytest.fixture(autouse=True)
def compile_quickly(monkeypatch):
    monkeypatch.setattr(simulate, "COMPILER_OPTIONS", {"cpu": QUICKLY})


@functools.cache
def federation(name, world, **settings):
    """A problem and an algorithm that several tests share, so that its local update is traced once for all of them."""
    small = SMALL[world]()
    # A server that remembers every agent's message is tested in algorithms/test_calm.py: it depends on N, and on agents that were absent.
    return small, make(name, small.problem, **({"agents": None} if name == "calm" else {}) | settings)


@functools.cache
def together(local_update):
    """A local update for all agents at once."""
    return jax.jit(jax.vmap(local_update, (0, None, 0, 0)), compiler_options=QUICKLY)


def types_of(tree):
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


def one_round(algorithm, small, key, agents, order=None):
    """A round by hand from theta_0: server state before and after, messages, agent states, infos."""
    members = participants(algorithm, agents)
    count = jax.tree.leaves(members)[0].shape[0]
    order = jnp.arange(count) if order is None else order
    server, agent_state = algorithm.init(small.problem.init_params(key))
    states = trees.broadcast(agent_state, count)
    for exchange in exchanges_of(algorithm):
        keys = jax.random.split(key, count)[order]
        messages, states, infos = together(exchange.local_update)(keys, server.shared, states, trees.take(members, order))
        declared = jax.tree.map(lambda x: (x.shape, x.dtype), exchange.predicted(server.shared))
        assert declared == jax.tree.map(lambda x: (x.shape[1:], x.dtype), messages), "the message is not what its exchange says"
        before = server
        server, _ = exchange.aggregate(server, messages, jnp.ones(count))
    if algorithm.server_update is not None:
        server, _ = jax.jit(algorithm.server_update, compiler_options=QUICKLY)(key, server, agents)
    return before, server, messages, states, agent_state, infos


@pytest.mark.parametrize("name", each(NAMES))
def test_shapes_and_types_survive_a_round(name):
    small, algorithm = federation(name, home(name))
    before, after, _, states, agent_state, infos = one_round(algorithm, small, jax.random.key(0), small.agents(jax.random.key(1)))
    assert types_of(before) == types_of(after)
    assert jax.tree.map(lambda x: x.shape[1:], states) == jax.tree.map(jnp.shape, agent_state)
    assert bool(trees.all_finite((after, states)))
    # agents, local steps, trajectories per batch
    assert int(infos.usage.trajectories.sum()) == 3 * 3 * 2 * BATCHES_PER_STEP.get(name, 1)


@pytest.mark.parametrize(("name", "world"), [(name, world) for name in NAMES for world in WORLDS if claims(name, world)])
def test_types_on_every_problem_in_double_precision(name, world, float64):
    """Every exchange keeps the types and shapes of all states; nothing is compiled."""
    small, key = SMALL[world](), jax.random.key(0)
    algorithm = make(name, small.problem)
    agent = jax.eval_shape(lambda key: trees.take(participants(algorithm, small.agents(key)), 0), key)
    server, state = jax.eval_shape(lambda key: algorithm.init(small.problem.init_params(key)), key)
    for exchange in exchanges_of(algorithm):
        message, after, _ = jax.eval_shape(exchange.local_update, key, server.shared, state, agent)
        assert types_of(after) == types_of(state)
        messages = jax.tree.map(lambda x: jax.ShapeDtypeStruct((3, *x.shape), x.dtype), message)
        assert types_of(jax.eval_shape(exchange.aggregate, server, messages, jnp.ones(3))[0]) == types_of(server)
    if algorithm.server_update is not None:
        agents = jax.eval_shape(small.agents, key)
        assert types_of(jax.eval_shape(algorithm.server_update, key, server, agents)[0]) == types_of(server)
    assert {x.dtype for x in jax.tree.leaves((server.shared, state))} == {np.dtype("float64")}


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
def test_absent_agents_have_no_influence(name):
    """Whatever an absent agent sent, params move as they would without it."""
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


@pytest.mark.parametrize("name", each(NAMES, tuple(name for name in NAMES if name not in SMALLEST)))
def test_one_agent_one_local_step(name):
    """The smallest sizes, and two calls of one compiled program."""
    small = SMALL["bowl" if claims(name, "bowl") else home(name)](agents=1)
    ran = run(small, make(name, small.problem, agents=1, local_steps=1), 2, seeds=2)
    state, _ = ran.sim.run(ran.state, 2)
    assert (state.rows.failed == -1).all()
    assert ran.sim.programs.compilations == {"blank": 0, "start": 1, "run": 1, "evaluate": 0, "params": 0}


@pytest.mark.parametrize("name", each((name for name in NAMES if claims(name, "direct")), SELDOM))
def test_direct_policies_stay_on_the_simplex(name):
    small, algorithm = federation(name, "direct", local_lr=0.5)
    _, after, _, states, _, _ = one_round(algorithm, small, jax.random.key(0), small.agents(jax.random.key(1)))
    rows = algorithm.deployed(after.shared, trees.take(states, 0))["probabilities"]
    np.testing.assert_allclose(rows.sum(-1), 1.0, atol=1e-5)
    assert float(rows.min()) > 0
    assert bool(trees.all_finite((after, states)))

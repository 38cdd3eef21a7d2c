"""The rivals against recursions written out by hand, against PAvg, and at a stationary point of the average objective."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import trees
from fedpg.algorithms import ALGORITHMS, calm, fast_fedpg, fedavg_m, mfpo, nharpg, pavg, scaffold
from fedpg.algorithms.fast_fedpg import CORRECTIONS
from fedpg.errors import UserError
from fedpg.quadratic import quadratic
from fedpg.simulate_plain import plain_simulator
from helpers import loops
from helpers.compare import assert_trees_close
from helpers.federations import SMALL, bowl, make, run
from helpers.loops import BETA, ETA, RATE, ROUNDS, STEPS

COMMON = {"local_lr": ETA, "global_lr": RATE, "local_steps": STEPS}


def falling(b, theta):
    """MFPO with m = 4 and c = 30: nu of step t is made of the eta of step t - 1."""
    return loops.mfpo(b, theta, lambda t: 30 * (ETA * shrink(t - 1)) ** 2 if t else 1.0, shrink)


def shrink(t):
    return (4 / (4 + t + 1)) ** (1 / 3)


LOOPS = {
    "fedprox": (lambda b, theta: loops.fedprox(b, theta, 0.7), {"mu": 0.7}),
    "scaffold, path": (lambda b, theta: loops.scaffold(b, theta, "path"), {}),
    "scaffold, start": (lambda b, theta: loops.scaffold(b, theta, "start"), {"variate": "start"}),
    **{f"fast-fedpg, {name}": (loops.fast_fedpg, {"correction": name}) for name in CORRECTIONS},
    "mfpo": (lambda b, theta: loops.mfpo(b, theta, lambda t: BETA if t else 1.0, lambda t: 1.0), {"beta": BETA}),
    "mfpo, steps": (falling, {"schedule": "steps", "offset": 4.0, "momentum_constant": 30.0}),
    "fedavg-m": (loops.fedavg_m, {"beta": BETA}),
    "nharpg, normalised": (lambda b, theta: loops.nharpg(b, theta, "normalised", False), {"beta": BETA}),
    "nharpg, plain": (lambda b, theta: loops.nharpg(b, theta, "plain", False), {"beta": BETA, "step": "plain"}),
    "nharpg, decaying": (lambda b, theta: loops.nharpg(b, theta, "normalised", True), {"schedule": "decaying"}),
}  # fmt: skip


@pytest.mark.parametrize("label", LOOPS)
def test_recursions_on_quadratics_by_hand(label, float64):
    """Exact gradients, heterogeneous agents: every line of the algorithm written out in helpers/loops.py."""
    by_hand, settings = LOOPS[label]
    small = bowl()
    algorithm = ALGORITHMS[label.partition(",")[0]](small.problem, **COMMON, **settings)
    ran = run(small, algorithm, ROUNDS, engine=plain_simulator)
    expected = by_hand(loops.Bowls(trees.take(ran.state.agents, 0)), np.zeros(4))
    np.testing.assert_allclose(ran.shared.params[0], expected, rtol=1e-11)


@pytest.mark.parametrize("world", ["bowl", "random-mdp"])
def test_fedprox_without_a_spring_and_scaffold_with_equal_variates_are_pavg_bit_for_bit(world):
    small = SMALL[world]()
    agents, keys = small.agents(jax.random.key(1)), jax.random.split(jax.random.key(0), 3)

    def after_a_round(algorithm, variates=None):
        """Params after a round; with `variates`, c and the c_i are these numbers everywhere."""
        server, state = algorithm.init(small.problem.init_params(jax.random.key(2)))
        states = trees.broadcast(state, 3)
        if variates is not None:
            c, own = variates
            server = server._replace(shared=server.shared._replace(variate=jax.tree.map(lambda x: x + c, server.shared.variate)))
            states = states._replace(variate=jax.tree.map(lambda x: jax.vmap(jnp.add)(x, own), states.variate))
        messages, _, _ = jax.jit(jax.vmap(algorithm.local_update, (0, None, 0, 0)))(keys, server.shared, states, agents)
        return jax.jit(algorithm.aggregate)(server, messages, jnp.ones(3))[0].shared.params

    plain, controlled = after_a_round(make("pavg", small.problem)), make("scaffold", small.problem)
    assert_trees_close(after_a_round(make("fedprox", small.problem, mu=0.0)), plain)
    assert_trees_close(after_a_round(controlled, (0.37, jnp.full(3, 0.37))), plain)
    unequal = after_a_round(controlled, (0.37, jnp.array([0.37, 0.37, 1.37])))
    assert float(trees.norm_sq(trees.subtract(unequal, plain))) > 1e-5


def test_calm_is_fedavg_m_with_a_faster_server_where_variates_are_the_direction():
    """With c_i = u_r in every round; rho = beta makes the servers equal too: u' = (1-beta) u + beta mean m_i."""
    small = SMALL["bowl"]()
    settings = {"beta": 0.3, "local_lr": 0.02, "local_steps": 3}
    one, other = fedavg_m(small.problem, **settings), calm(small.problem, server_rate=0.3, **settings)

    def forgetful(key, shared, state, agent):
        return other.local_update(key, shared, state._replace(known=jnp.zeros(())), agent)

    found = [tuple(run(small, algorithm, 3, engine=plain_simulator).shared) for algorithm in (one, other._replace(local_update=forgetful))]
    assert_trees_close(*found, rtol=1e-4, atol=1e-6)


def by_parts(algorithm, key, server, states, agents, present=None):
    """A round in which absent agents keep their state: server, agent states, what the last exchange cost."""
    count = jax.tree.leaves(agents)[0].shape[0]
    present = jnp.ones(count) if present is None else present
    for number, exchange in enumerate((*algorithm.prelude, algorithm)):
        keys = jax.random.split(jax.random.fold_in(key, number), count)
        messages, after, infos = jax.vmap(exchange.local_update, (0, None, 0, 0))(keys, server.shared, states, agents)
        states = jax.vmap(trees.select)(present > 0, after, states)
        server, _ = exchange.aggregate(server, messages, present)
    return server, states, infos


def test_scaffolds_variate_is_the_mean_of_all_agents_whoever_was_absent():
    small = bowl(noise=0.3)
    algorithm = scaffold(small.problem, local_lr=0.05, local_steps=3)
    server, state = algorithm.init(jnp.zeros(4))
    states, agents = trees.broadcast(state, 3), small.agents(jax.random.key(1))
    for r, present in enumerate(([1, 1, 0], [0, 1, 0], [1, 0, 1], [1, 1, 1], [0, 1, 1])):
        server, states, _ = by_parts(algorithm, jax.random.key(r), server, states, agents, jnp.array(present, float))
        np.testing.assert_allclose(server.shared.variate, states.variate.mean(0), atol=1e-5)
    assert np.abs(server.shared.variate).max() > 0.1


@pytest.mark.parametrize(
    ("factory", "own", "batches"),
    [
        (scaffold, {}, 3),
        (scaffold, {"variate": "start"}, 4),
        (nharpg, {}, 6),
        (mfpo, {}, 3),
        (fast_fedpg, {"common_batches": 2}, 3),
    ],
)
def test_every_batch_is_counted(factory, own, batches):
    small = bowl()
    algorithm = factory(small.problem, local_lr=0.02, local_steps=3, **own)
    server, state = algorithm.init(jnp.zeros(4))
    agent = trees.take(small.agents(jax.random.key(1)), 0)
    _, _, info = algorithm.local_update(jax.random.key(0), server.shared, state, agent)
    assert int(info.usage.trajectories) == batches
    first = [exchange.local_update(jax.random.key(0), server.shared, state, agent)[2] for exchange in algorithm.prelude]
    assert [int(info.usage.trajectories) for info in first] == ([2] if factory is fast_fedpg else [])


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("fedprox", {"mu": -1.0}, "mu must be 0 or more, not -1.0"),
        ("scaffold", {"variate": "III"}, "unknown variate 'III'"),
        ("fast-fedpg", {"correction": "stores"}, "did you mean 'stored'"),
        ("fast-fedpg", {"common_batches": 0}, "common_batches must be at least 1"),
        ("mfpo", {"schedule": "step"}, "did you mean 'steps'"),
        ("mfpo", {"offset": 0.0}, "offset must be positive"),
        ("mfpo", {"momentum_constant": -2.0}, "momentum_constant must be positive"),
        ("nharpg", {"step": "normalized"}, "did you mean 'normalised'"),
        ("nharpg", {"schedule": "1/t"}, "unknown schedule"),
        ("fedavg-m", {"beta": 0.0}, r"beta must be in \(0, 1\]"),
    ],
)
def test_values_that_mean_nothing(name, settings, message):
    with pytest.raises(UserError, match=message):
        ALGORITHMS[name](quadratic(2), local_lr=0.1, **settings)


def test_pavg_is_mfpo_and_nharpg_at_beta_one(float64):
    """In exact arithmetic; N-HARPG with its plain step."""
    small = bowl()
    plain = run(small, pavg(small.problem, **COMMON), 3, engine=plain_simulator).shared.params
    for algorithm in (mfpo(small.problem, beta=1.0, **COMMON), nharpg(small.problem, beta=1.0, step="plain", u0_batches=0, **COMMON)):
        assert_trees_close(run(small, algorithm, 3, engine=plain_simulator).shared.params, plain, rtol=1e-12)

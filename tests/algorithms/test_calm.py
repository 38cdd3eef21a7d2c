"""CALM against a recursion by hand, its laws (fixed point, variance of the path, stability), and its identities with PAvg and SCAFFOLD."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.algorithms import calm, pavg, scaffold
from fedpg.algorithms.calm import ABSENCE, Table
from fedpg.algorithms.selection import Participation
from fedpg.errors import UserError
from fedpg.quadratic import Bowl, bowls, quadratic
from fedpg.simulate import simulator
from helpers.compare import assert_trees_close
from helpers.federations import SMALL, Small, bowl, make, run

BOWLS = Bowl(
    jnp.stack([jnp.diag(jnp.array(diagonal)) for diagonal in ([1.0, 2.0], [3.0, 0.5], [0.7, 1.5])]),
    jnp.array([[1.0, -1.0], [-2.0, 0.5], [0.3, 2.0]]),
)
BETA, RATE, ETA, STEPS = 0.3, 0.6, 0.05, 3
PRESENCE = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1], [0, 0, 1], [1, 1, 1], [1, 0, 0]])


def by_hand(presence: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """theta and u after rounds with these agents present, without noise, in NumPy."""
    theta, u, last, own = np.zeros(2), np.zeros(2), {}, {}
    for present in presence:
        sent = {}
        for i in np.flatnonzero(present):
            A, centre = np.asarray(BOWLS.curvature[i], float), np.asarray(BOWLS.centre[i], float)
            th, gradients = theta, []
            for _ in range(STEPS):
                g = -A @ (th - centre)
                gradients.append(g)
                th = th + ETA * (u + BETA * (g - own.get(i, u)) if u.any() else g)
            sent[i] = own[i] = np.mean(gradients, 0)
        share, usual = present.mean(), np.mean(list(last.values()), 0) if last else np.zeros(2)
        news = np.mean([m - last.get(i, usual) for i, m in sent.items()], 0)
        last |= sent
        rate = min(1.0, RATE / share) if u.any() else 1.0
        u = rate * np.mean(list(last.values()), 0) + (1 - rate) * u
        theta = theta + ETA * STEPS * (u + (1 - share) * news)
    return theta, u


def played(algorithm, presence):
    """The server after rounds with these agents present, without noise."""
    server, state = algorithm.init(jnp.zeros(2))
    states = jax.tree.map(lambda x: jnp.stack([x] * 3), state)
    for present in presence:
        messages, after, _ = jax.vmap(algorithm.local_update, (0, None, 0, 0))(
            jax.random.split(jax.random.key(0), 3), server.shared, states, BOWLS
        )
        states = jax.tree.map(
            lambda new, old, there=present: jnp.where(there.reshape(-1, *[1] * (new.ndim - 1)) > 0, new, old), after, states
        )
        server, _ = algorithm.aggregate(server, messages, jnp.asarray(present, float))
    return server


def test_the_recursion_is_that_written_by_hand(float64):
    server = played(calm(quadratic(2), beta=BETA, server_rate=RATE, local_lr=ETA, local_steps=STEPS, agents=3), PRESENCE)
    theta, u = by_hand(PRESENCE)
    np.testing.assert_allclose(server.shared.params, theta, rtol=1e-12)
    np.testing.assert_allclose(server.shared.direction, u, rtol=1e-12)


@pytest.mark.parametrize("world", ["bowl", "random-mdp"])
def test_the_first_round_is_pavgs_and_a_table_changes_nothing_while_all_are_present(world):
    small = SMALL[world]()
    first = [run(small, make(name, small.problem), 1) for name in ("calm", "pavg")]
    assert_trees_close(first[0].shared.direction, jax.tree.map(lambda x: x / (0.02 * 3), difference(*first)), rtol=1e-4, atol=1e-6)
    with_table, without = (run(small, calm(small.problem, local_lr=0.02, local_steps=3, agents=n), 3).shared for n in (3, None))
    assert_trees_close(with_table, without, rtol=1e-5, atol=1e-7)


def difference(ours, plain):
    """How far PAvg moved in its first round: it must be CALM's u_1 times eta K."""
    start = plain.sim.params(plain.sim.init(jax.random.key(0)))
    return jax.tree.map(jnp.subtract, plain.shared.params, start)


def test_beta_and_rate_one_are_scaffold(float64):
    small = bowl(noise=0.3)
    steps = {"local_lr": 0.05, "local_steps": 4}
    ours, theirs = calm(small.problem, beta=1.0, server_rate=1.0, agents=3, **steps), scaffold(small.problem, **steps)
    assert_trees_close(*(run(small, algorithm, 5).shared.params for algorithm in (ours, theirs)), rtol=1e-10)


def test_beta_and_rate_one_are_scaffold_while_agents_are_absent_too(float64):
    """Once every agent has been present."""
    steps, presence = {"local_lr": ETA, "local_steps": STEPS}, np.concatenate([np.ones((1, 3), int), PRESENCE])
    ours = played(calm(quadratic(2), beta=1.0, server_rate=1.0, agents=3, **steps), presence)
    theirs = played(scaffold(quadratic(2), **steps), presence)
    np.testing.assert_allclose(ours.shared.params, theirs.shared.params, rtol=1e-10)
    np.testing.assert_allclose(ours.shared.direction, theirs.shared.variate, rtol=1e-10)


def at_rest(problem, algorithm, agents, share=1.0, rounds=1500):
    """|grad J|^2 after many rounds without noise, mean over two draws of participants."""
    sim = simulator(problem, algorithm, agents, seeds=2, participation=Participation(share))
    state, _ = sim.run(sim.init(jax.random.key(0)), rounds)
    return float(sim.evaluate(state).grad_norm_sq.max())


@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("local_steps", [2, 8, 32])
def test_it_rests_where_the_gradient_is_zero(local_steps, share, float64):
    """For every beta, K and share of agents, at a constant step-size, where PAvg has a floor."""
    agents, problem = bowls(jax.random.key(3), 10, 0.5), quadratic(4)
    steps = {"local_lr": 0.16 / local_steps, "local_steps": local_steps}
    plain = at_rest(problem, pavg(problem, **steps), agents, rounds=300)
    assert plain > 1e-5
    for beta in (0.05, 0.2, 0.5):
        assert at_rest(problem, calm(problem, beta=beta, agents=10, **steps), agents, share) < 1e-20


def test_the_noise_of_a_path_is_beta_squared_of_pavgs(float64):
    """Var(theta_iK - theta_r) on a plane, where every gradient is noise: eta^2 K sigma^2, times beta^2."""
    problem, flat = quadratic(4, noise=1.0), Bowl(jnp.zeros((4, 4)), jnp.zeros(4))
    algorithm = calm(problem, beta=BETA, local_lr=1.0, local_steps=16)
    server, state = algorithm.init(jnp.zeros(4))
    shared, state = server.shared._replace(direction=jnp.ones(4)), state._replace(known=jnp.ones(()))
    keys = jax.random.split(jax.random.key(0), 4000)
    message, _, _ = jax.vmap(algorithm.local_update, (0, None, None, None))(keys, shared, state, flat)
    end = 16 * (1.0 + BETA * np.asarray(message))  # theta_iK = theta_r + eta K (u_r + beta (m_i - c_i)), here with c_i = 0
    np.testing.assert_allclose(end.var(axis=0).mean(), BETA**2 * 16, rtol=0.03)


def error(x, **settings):
    """Distance from the optimum after 300 rounds with eta K L = x, two identical agents in one dimension, no noise, K large."""
    problem, agents = quadratic(1), Bowl(jnp.ones((2, 1, 1)), jnp.ones((2, 1)))
    algorithm = calm(problem, local_lr=x / 400, local_steps=400, **settings)
    return float(jnp.abs(run(Small(problem, agents), algorithm, 300).shared.params[0] - 1.0).max())


@pytest.mark.parametrize("rate", [0.2, 0.4, 1.0])
def test_without_lean_it_is_stable_up_to_two_over_rho_minus_one(rate, float64):
    """eta K L < 2/rho - 1 as beta goes to 0 and K grows: derived in docs/explanation/calm.md."""
    bound = 2.0 / rate - 1.0
    assert error(0.95 * bound, beta=1e-6, server_rate=rate) < 0.05
    assert error(1.05 * bound, beta=1e-6, server_rate=rate) > 10.0


def test_at_the_defaults_paths_damp_themselves(float64):
    """beta = 0.2 moves the bound on eta K L from 4 to between 18 and 24 (19.5 by eigenvalues)."""
    assert error(18.0) < 0.05
    assert error(24.0) > 10.0


@pytest.mark.parametrize("rate", [0.2, 0.4, 1.0])
def test_the_noise_of_the_direction(rate, float64):
    """Var(u) = rho/(2-rho) Var(M) where messages are white noise: a quarter at rho = 0.4."""
    algorithm = calm(quadratic(4000), server_rate=rate, local_lr=1.0)
    server, _ = algorithm.init(jnp.zeros(4000))
    for message in jax.random.normal(jax.random.key(0), (30, 1, 4000)):
        server, _ = algorithm.aggregate(server, message, jnp.ones(1))
    np.testing.assert_allclose(server.shared.direction.var(), rate / (2.0 - rate), rtol=0.1)


def test_the_step_along_the_messages_of_those_present_is_unbiased(float64):
    """Over all sets of p N agents, p <= rho, its mean is the mean message of all; messages of variance 1 give it (2-p)/(p N)."""
    algorithm = calm(quadratic(4000), server_rate=0.4, local_lr=1.0, agents=5)
    server, _ = algorithm.init(jnp.zeros(4000))
    last, now = jax.random.normal(jax.random.key(0), (2, 5, 4000))
    server = server._replace(shared=server.shared._replace(direction=last.mean(0)), private=Table(last, jnp.zeros(5, int)))
    sets = jnp.array([[i in pair for i in range(5)] for pair in itertools.combinations(range(5), 2)], float)
    steps = jax.vmap(lambda present: algorithm.aggregate(server, now, present)[0].shared.params)(sets)
    np.testing.assert_allclose(steps.mean(0), now.mean(0), atol=1e-12)
    np.testing.assert_allclose(steps.var(), (2.0 - 0.4) / (0.4 * 5), rtol=0.05)


def test_an_agent_that_lost_its_disk_costs_nothing_in_the_end(float64):
    small = bowl(agents=3)
    sim = simulator(small.problem, calm(small.problem, local_lr=0.02, local_steps=8, agents=3), small.agents)
    state, _ = sim.run(sim.init(jax.random.key(0)), 20)
    fresh = sim.init(jax.random.key(0)).rows.agents
    lost = jax.tree.map(lambda now, new: now.at[:, 1].set(new[:, 1]), state.rows.agents, fresh)
    state, _ = sim.run(state._replace(rows=state.rows._replace(agents=lost)), 600)
    assert float(sim.evaluate(state).grad_norm_sq[0]) < 1e-20


def test_an_agent_that_left_for_good_is_forgotten(float64):
    """Two of three agents go on: theta ends where their own mean gradient is zero."""
    algorithm = calm(quadratic(2), local_lr=0.05, local_steps=4, agents=3)
    server, state = algorithm.init(jnp.zeros(2))
    states = jax.tree.map(lambda x: jnp.stack([x] * 3), state)
    keys = jax.random.split(jax.random.key(0), 3)

    @jax.jit
    def one_round(server, states, present):
        messages, states, _ = jax.vmap(algorithm.local_update, (0, None, 0, 0))(keys, server.shared, states, BOWLS)
        return algorithm.aggregate(server, messages, present)[0], states

    left = jnp.array([1.0, 1.0, 0.0])
    server, states = one_round(server, states, jnp.ones(3))
    for _ in range(int(ABSENCE / (2 / 3)) - 2):
        server, states = one_round(server, states, left)
    remembered = server.shared.params
    for _ in range(600):
        server, states = one_round(server, states, left)
    two = Bowl(BOWLS.curvature[:2], BOWLS.centre[:2])
    optimum = jnp.linalg.solve(two.curvature.sum(0), jnp.einsum("nij,nj->i", two.curvature, two.centre))
    np.testing.assert_allclose(server.shared.params, optimum, atol=1e-10)
    assert float(jnp.abs(remembered - optimum).max()) > 1e-3


@pytest.mark.parametrize("settings", [{"server_rate": 0.0}, {"server_rate": 1.5}, {"beta": 0.0}])
def test_values_that_mean_nothing(settings):
    with pytest.raises(UserError, match=r"must be in \(0, 1\]"):
        calm(quadratic(2), local_lr=0.1, **settings)


def radius(x, beta, rate):
    """Spectral radius of one round's map of (theta, u/L, c/L) for K -> infinity, x = eta K L: the path is solved exactly."""
    still = -np.expm1(-beta * x) / (beta * x)
    message = -np.array([still, (1 - still) / beta, still - 1])
    direction = rate * message + (1 - rate) * np.array([0, 1, 0])
    return np.abs(np.linalg.eigvals([np.array([1, 0, 0]) + x * direction, direction, message])).max()


def test_the_table_of_stability():
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "calm.md").read_text()
    (table,) = re.findall(r"\| beta \| rho = .*?\n\n", page, re.DOTALL)
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.strip().splitlines()]
    assert len(rows) == 6
    for beta, *bounds in rows:
        for rate, bound in zip(head[1:], bounds, strict=True):
            setting = max(float(beta), 1e-5), float(rate.removeprefix("rho = "))
            last = 100.0 if bound == "none" else 0.98 * float(bound)
            assert max(radius(x, *setting) for x in np.linspace(0.01, last, 200)) < 1.0
            assert bound == "none" or radius(1.02 * float(bound), *setting) > 1.0

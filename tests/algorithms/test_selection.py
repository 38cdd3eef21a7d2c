"""The rules by hand: what candidates report, whom the server takes, and what it costs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import policies, trees
from fedpg.algorithms import pavg
from fedpg.algorithms.selection import Participation, preference, report_of, selector
from fedpg.envs import family
from fedpg.keys import Moment
from fedpg.problem import exact_policy_gradient, policy_gradient
from fedpg.simulate import simulator
from helpers.compare import random_params
from helpers.environments import CLOCK, clock

DISCOUNT = 0.9
KIND = family("random-mdp")
OPTIONS = KIND.options(states=3, actions=2, reward_heterogeneity=1.0)
ENVIRONMENT = KIND.environment(OPTIONS)
POLICY = policies.make("softmax", ENVIRONMENT)
PROBLEM = exact_policy_gradient(ENVIRONMENT, POLICY, discount=DISCOUNT)
AGENTS = KIND.agents(jax.random.key(5), 6, 1.0, OPTIONS)
PARAMS = random_params(POLICY, 3)


def tables_by_hand():
    """D_i A_i of every agent, (N, S, A), in NumPy: visits by their series, values by repeated backups."""
    logits = np.asarray(PARAMS["logits"], float)
    pi = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    tables = []
    for i in range(6):
        transition, reward, start = (np.asarray(x[i], float) for x in AGENTS)
        visits, now, value = np.zeros(3), start, np.zeros(3)
        for t in range(400):
            visits = visits + DISCOUNT**t * now
            now = np.einsum("s,sa,sat->t", now, pi, transition)
            value = (pi * (reward + DISCOUNT * transition @ value)).sum(1)
        q = reward + DISCOUNT * transition @ value
        tables.append(visits[:, None] * (q - value[:, None]))
    return np.array(tables)


def frobenius(tables):
    return np.sqrt((tables**2).sum((1, 2)))


def test_tables_and_preferences_are_those_by_hand():
    tables = tables_by_hand()
    reports, info = jax.jit(jax.vmap(lambda agent: report_of("csh-max", PROBLEM, True)(jax.random.key(0), PARAMS, agent)))(AGENTS)
    np.testing.assert_allclose(reports, tables, rtol=1e-4, atol=1e-5)
    assert int(info.usage.trajectories.sum()) == 0
    apart = frobenius(tables.mean(0) - tables)
    np.testing.assert_allclose(preference("csh-max", reports), frobenius(tables) - apart, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(preference("csh-min", reports), -apart, rtol=1e-3, atol=1e-4)


def test_exact_returns_and_gradients():
    key = jax.random.key(0)
    returns, _ = jax.vmap(lambda agent: report_of("power-of-choice", PROBLEM, True)(key, PARAMS, agent))(AGENTS)
    norms, _ = jax.vmap(lambda agent: report_of("gradient-norm", PROBLEM, True)(key, PARAMS, agent))(AGENTS)
    found = jax.vmap(PROBLEM.evaluate, (None, None, 0))(key, PARAMS, AGENTS)
    np.testing.assert_allclose(returns, found.objective, rtol=1e-5)  # without a horizon the return is J
    pi = np.asarray(jax.nn.softmax(PARAMS["logits"]))
    np.testing.assert_allclose(norms, frobenius(pi * tables_by_hand()), rtol=1e-3)  # grad J_i = x pi A on logits


@pytest.mark.parametrize(("rule", "wanted"), [("power-of-choice", [2, 0]), ("gradient-norm", [1, 0])])
def test_the_best_are_taken_and_what_is_no_number_last(rule, wanted):
    order = jnp.argsort(-preference(rule, jnp.array([3.0, 7.0, 2.0, jnp.nan])), stable=True)
    assert order[:2].tolist() == wanted
    assert int(order[-1]) == 3


def test_a_broken_table_does_not_spoil_the_mean_of_the_others():
    tables = jnp.asarray(tables_by_hand())
    broken = preference("csh-max", tables.at[2].set(jnp.nan))
    whole = preference("csh-max", jnp.delete(tables, 2, axis=0))
    np.testing.assert_allclose(jnp.delete(broken, 2), whole, rtol=1e-5)
    assert float(broken[2]) == -np.inf


@pytest.mark.parametrize("rule", ["power-of-choice", "gradient-norm", "csh-max", "csh-min"])
def test_who_is_taken_does_not_depend_on_the_order_of_the_agents(rule):
    """Three of six, all of them candidates, reports exact: the same three whatever their numbers."""
    select = selector(Participation(0.5, rule), PROBLEM, pavg(PROBLEM, local_lr=0.1), AGENTS)
    turned = jnp.array([4, 2, 0, 5, 1, 3])
    reports = jax.jit(jax.vmap(lambda agent: select.report(jax.random.key(0), PARAMS, agent)[0]))(AGENTS)
    straight = select.choose(jnp.arange(6), reports)
    other = turned[select.choose(jnp.arange(6), reports[turned])]
    assert sorted(straight.tolist()) == sorted(other.tolist())
    best = np.argsort(-np.asarray(preference(rule, reports)))[:3]
    assert sorted(straight.tolist()) == sorted(best.tolist())


def test_candidates_are_drawn_uniformly_and_ties_broken_at_random():
    select = selector(Participation(0.34, "power-of-choice", 0.67), PROBLEM, pavg(PROBLEM, local_lr=0.1), AGENTS)
    assert (select.participants, select.reporting) == (2, 4)

    def one(round):
        drawn = select.draw(Moment(jax.random.key(0), 0, round), 6)
        return drawn, select.choose(drawn, jnp.zeros(4))

    candidates, taken = jax.jit(jax.vmap(one))(jnp.arange(3000))
    assert all(len(set(row)) == 4 for row in candidates.tolist())
    for found, expected in ((candidates, 4 / 6), (taken, 2 / 6)):
        share = np.bincount(np.asarray(found).ravel(), minlength=6) / 3000
        np.testing.assert_allclose(share, expected, atol=4.5 * np.sqrt(expected * (1 - expected) / 3000))


def test_sampled_reports_are_one_batch_and_are_counted():
    """Clocks that stop after 2, 3, 4 and 5 ticks and pay 1, 2, 3, ...: all report a batch of two, the two poorest train."""
    problem = policy_gradient(CLOCK, policies.categorical(CLOCK, hidden=(2,)), horizon=6, discount=DISCOUNT, batch_size=2)
    clocks = trees.stack([clock(end) for end in (5, 2, 4, 3)])
    algorithm = pavg(problem, local_lr=0.01)
    select = selector(Participation(0.5, "power-of-choice"), problem, algorithm, clocks)
    params = problem.init_params(jax.random.key(1))
    reports, infos = jax.jit(jax.vmap(lambda agent: select.report(jax.random.key(2), params, agent)))(clocks)
    assert reports.tolist() == [15.0, 3.0, 10.0, 6.0]
    assert infos.usage.trajectories.tolist() == [2] * 4
    assert select.choose(jnp.arange(4), reports).tolist() == [1, 3]
    sim = simulator(problem, algorithm, clocks, participation=Participation(0.5, "power-of-choice"))
    state, info = sim.run(sim.init(jax.random.key(0)), 2)
    usage = info.local.usage
    assert usage.trajectories.tolist() == [2 * (4 * 2 + 2 * 2)]  # rounds, candidates and participants, batch
    assert usage.env_steps.tolist() == [2 * (2 * (5 + 2 + 4 + 3) + 2 * (2 + 3))]
    assert usage.total_return.tolist() == [2 * (2 * (15 + 3 + 10 + 6) + 2 * (3 + 6))]
    assert sim.communication(state).round_up == 4 + 2 * trees.size(params)


def test_a_sampled_gradient_is_measured_where_it_is_no_finite_mdp():
    small = policy_gradient(ENVIRONMENT, POLICY, horizon=4, discount=DISCOUNT, batch_size=3)
    agent = jax.tree.map(lambda x: x[0], AGENTS)
    norm, info = jax.jit(report_of("gradient-norm", small, False))(jax.random.key(4), PARAMS, agent)
    slope = jax.jit(lambda: small.gradient(small.sample(jax.random.key(4), PARAMS, agent, small.init_memory())[0], PARAMS))()
    np.testing.assert_allclose(norm, np.linalg.norm(slope["logits"]), rtol=1e-5)
    assert int(info.usage.trajectories) == 3

"""FAPI: one round by hand, the optimum where agents agree, and what the mixing is for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import policies, trees
from fedpg.algorithms.fapi import fapi
from fedpg.envs import family
from fedpg.envs.tabular import MDP, environment
from fedpg.errors import UserError
from fedpg.problem import exact_policy_gradient
from helpers.compare import random_params
from helpers.federations import SMALL

DISCOUNT = 0.9
KIND = family("random-mdp")
OPTIONS = KIND.options(states=3, actions=2, reward_heterogeneity=0.5)
ENVIRONMENT = KIND.environment(OPTIONS)


def problem_of(policy):
    return exact_policy_gradient(ENVIRONMENT, policies.make(policy, ENVIRONMENT), discount=DISCOUNT)


def rounds(algorithm, problem, agents, count):
    """The last params, |u|^2 of every round, and the mean J after it."""
    start = algorithm.init(problem.init_params(jax.random.key(0)))[0]
    number = jax.tree.leaves(agents)[0].shape[0]

    def one(server, _):
        messages, _, _ = jax.vmap(algorithm.local_update, (None, None, None, 0))(jax.random.key(0), server.shared, (), agents)
        server, info = algorithm.aggregate(server, messages, jnp.ones(number))
        found = jax.vmap(problem.evaluate, (None, None, 0))(jax.random.key(0), server.shared.params, agents)
        return server, (info.direction_sq, found.objective.mean())

    server, (moved, objective) = jax.jit(lambda: jax.lax.scan(one, start, None, length=count))()
    return server.shared.params, np.asarray(moved), np.asarray(objective)


def values_by_hand(mdp, pi):
    """Q of pi, (S, A), by a linear solve in NumPy."""
    transition, reward = np.asarray(mdp.transition, float), np.asarray(mdp.reward, float)
    kernel = np.einsum("sa,sat->st", pi, transition)
    return reward + DISCOUNT * transition @ np.linalg.solve(np.eye(len(pi)) - DISCOUNT * kernel, (pi * reward).sum(1))


@pytest.mark.parametrize("policy", ["softmax", "direct"])
@pytest.mark.parametrize(("improvement", "mixing", "steps"), [("soft", 1.0, 1), ("greedy", 0.25, 1), ("soft", 0.5, 2)])
def test_a_round_is_the_mean_of_the_improved_policies(policy, improvement, mixing, steps):
    agents, problem = KIND.agents(jax.random.key(2), 3, 1.0, OPTIONS), problem_of(policy)
    params = random_params(policies.make(policy, ENVIRONMENT), 4)
    algorithm = fapi(problem, local_steps=steps, improvement=improvement, temperature=0.7, mixing=mixing)
    server = algorithm.init(params)[0]
    update = jax.jit(jax.vmap(algorithm.local_update, (None, None, None, 0)))
    messages, _, info = update(jax.random.key(0), server.shared, (), agents)
    after, seen = algorithm.aggregate(server, messages, jnp.array([1.0, 0.0, 1.0]))

    table = np.asarray(jax.nn.softmax(params["logits"]) if policy == "softmax" else params["probabilities"], float)
    improved = []
    for i in range(3):
        pi = table
        for _ in range(steps):
            q = values_by_hand(trees.take(agents, i), pi)
            if improvement == "soft":
                pi = pi * np.exp(q / 0.7)
                pi /= pi.sum(1, keepdims=True)
            else:
                pi = np.eye(2)[q.argmax(1)]
        improved.append(pi)
    np.testing.assert_allclose(messages, improved, rtol=1e-4, atol=1e-5)
    mean = (improved[0] + improved[2]) / 2  # the second was absent
    expected = (1 - mixing) * table + mixing * mean
    found = after.shared.params
    reached = jax.nn.softmax(found["logits"]) if policy == "softmax" else found["probabilities"]
    np.testing.assert_allclose(reached, expected, rtol=1e-4, atol=2e-3 if policy == "direct" else 1e-5)  # a floor of 0.001
    np.testing.assert_allclose(seen.direction_sq, ((mean - table) ** 2).sum(), rtol=1e-3)
    assert int(info.usage.trajectories.sum()) == 0


@pytest.mark.parametrize(("policy", "settings"), [("softmax", {"temperature": 0.1}), ("direct", {"improvement": "greedy", "mixing": 1.0})])
def test_agents_that_agree_reach_the_optimum(policy, settings):
    """A chain: going back pays 0.2 at once, going on pays 1 from its end. Within 2 % of what value iteration finds."""
    world = environment("chain", 6, 2)
    problem = exact_policy_gradient(world, policies.make(policy, world), discount=DISCOUNT)
    on = np.minimum(np.arange(6) + 1, 5)
    transition = np.stack([np.eye(6)[[0] * 6], np.eye(6)[on]], axis=1)
    reward = np.stack([np.full(6, 0.2), np.eye(6)[5]], axis=1)
    mdp, value = MDP(*map(jnp.asarray, (transition, reward, np.eye(6)[0]))), np.zeros(6)
    for _ in range(500):
        value = (reward + DISCOUNT * transition @ value).max(1)
    assert value[0] == pytest.approx(DISCOUNT**5 / (1 - DISCOUNT))  # always on
    _, _, objective = rounds(fapi(problem, **settings), problem, trees.broadcast(mdp, 2), 40)
    assert objective[0] < 0.6 * value[0]
    assert 0.98 * value[0] < objective[-1] <= value[0] * (1 + 1e-4)


def test_greedy_agents_may_run_in_a_circle_and_mixing_stops_that():
    """Two agents found by search: each round undoes the last one's improvement, J alternates for ever."""
    options = KIND.options(states=3, actions=2)
    agents, problem = KIND.agents(jax.random.split(jax.random.key(1), 400)[350], 2, 8.0, options), problem_of("softmax")
    _, moved, objective = rounds(fapi(problem, improvement="greedy", mixing=1.0), problem, agents, 200)
    assert moved[-1] > 0.1
    assert abs(objective[-1] - objective[-2]) > 0.3
    assert abs(objective[-1] - objective[-3]) < 1e-4
    for settings in ({"improvement": "greedy"}, {"temperature": 0.3}):
        _, moved, objective = rounds(fapi(problem, **settings), problem, agents, 200)
        assert moved[-1] < 1e-6
        assert abs(objective[-1] - objective[-2]) < 1e-4


@pytest.mark.parametrize("world", ["bowl", "cartpole"])
def test_only_tables_of_finite_mdps(world):
    with pytest.raises(UserError, match="fapi improves the whole table of a finite MDP"):
        fapi(SMALL[world]().problem)


@pytest.mark.parametrize("settings", [{"improvement": "best"}, {"temperature": 0.0}, {"mixing": 0.0}, {"mixing": 1.1}, {"local_steps": 0}])
def test_settings_that_mean_nothing_are_refused(settings):
    with pytest.raises(UserError):
        fapi(problem_of("softmax"), **settings)

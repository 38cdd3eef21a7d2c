"""The exact problem: gradients of the exact J, its Hessian times v, nothing sampled."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import policies
from fedpg.envs.tabular import MDP, environment
from fedpg.problem import exact_policy_gradient

KEY = jax.random.key(0)
WORLD = environment("small", 3, 2)
PARAMS = {"logits": jnp.array([[0.3, -0.2], [0.0, 1.0], [-0.5, 0.4]])}


def agent() -> MDP:
    random = np.random.default_rng(0)
    rows, start = random.dirichlet(np.ones(3), size=(3, 2)), random.dirichlet(np.ones(3))
    return MDP(*(jnp.asarray(x, jnp.float32) for x in (rows, random.uniform(size=(3, 2)), start)))


def by_hand(mdp: MDP, logits: np.ndarray, discount: float, horizon: int) -> float:
    """J by adding up rewards forward in time, in double precision."""
    pi = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    kernel, reward = np.einsum("sa,sat->st", pi, np.asarray(mdp.transition, float)), (pi * np.asarray(mdp.reward, float)).sum(1)
    where, total = np.asarray(mdp.start, float), 0.0
    for t in range(horizon):
        total += discount**t * where @ reward
        where = where @ kernel
    return total


@pytest.mark.parametrize("horizon", [7, None])
def test_gradient_and_hessian_are_those_of_the_objective(horizon):
    """Against central differences of J by hand; without a horizon that is a long sum."""
    problem, mdp = exact_policy_gradient(WORLD, policies.make("softmax", WORLD), discount=0.8, horizon=horizon), agent()
    sample, memory = problem.sample(KEY, PARAMS, mdp, problem.init_memory())
    assert memory == ()
    logits, vector = np.asarray(PARAMS["logits"], float), np.array([[1.0, -2.0], [0.5, 0.0], [0.0, 3.0]])

    def j(at: np.ndarray) -> float:
        return by_hand(mdp, at, 0.8, horizon or 200)

    def slope(at: np.ndarray, h: float = 1e-4) -> np.ndarray:
        units = np.eye(6).reshape(6, 3, 2)
        return np.array([(j(at + h * e) - j(at - h * e)) / (2 * h) for e in units]).reshape(3, 2)

    @jax.jit
    def everything(params: dict, along: dict) -> tuple:
        return problem.gradient(sample, params), problem.hessian_vector(sample, params, along), problem.evaluate(KEY, params, mdp)

    g, curved, found = everything(PARAMS, {"logits": jnp.asarray(vector, jnp.float32)})
    np.testing.assert_allclose(g["logits"], slope(logits), atol=2e-5)
    np.testing.assert_allclose(curved["logits"], (slope(logits + 1e-3 * vector) - slope(logits - 1e-3 * vector)) / 2e-3, atol=2e-4)
    np.testing.assert_allclose(found.objective, j(logits), rtol=1e-5)
    np.testing.assert_allclose(found.gradient["logits"], slope(logits), atol=2e-5)
    np.testing.assert_allclose(found.total_return, by_hand(mdp, logits, 1.0 if horizon else 0.8, horizon or 200), rtol=1e-5)


def test_nothing_is_drawn_and_no_weight_differs_from_one():
    """The key does not matter, F is the gradient at its params wherever the sample came from, and nothing is spent."""
    problem, mdp, elsewhere = (
        exact_policy_gradient(WORLD, policies.make("softmax", WORLD), discount=0.8, horizon=5),
        agent(),
        {"logits": jnp.ones((3, 2))},
    )
    one, other = (problem.sample(jax.random.key(seed), PARAMS, mdp, ())[0] for seed in (1, 2))
    g = problem.gradient(one, PARAMS)["logits"]
    np.testing.assert_array_equal(g, problem.gradient(other, PARAMS)["logits"])
    f, weights = problem.weighted_gradient(one, PARAMS, elsewhere)
    np.testing.assert_array_equal(f["logits"], g)
    assert [float(x) for x in weights] == [1.0, 1.0, 1.0, 1.0]
    assert [float(x) for x in problem.usage(one)[:3]] == [0.0, 0.0, 0.0]

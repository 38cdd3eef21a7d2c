"""g, F and Lambda have the right mean: every trajectory of a tiny MDP enumerated, against the exact gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from fedpg.envs.tabular import MDP, environment
from fedpg.gradients import baselines, exact, gpomdp
from fedpg.gradients.batch import gradient, weighted_gradient
from fedpg.gradients.hvp import hessian_vector
from fedpg.gradients.rollout import Trajectory
from fedpg.policies import direct, softmax
from helpers import enumeration
from helpers.compare import assert_trees_close, largest_difference, random_params
from helpers.enumeration import ACTIONS, DISCOUNT, HORIZON, STATES, each, expectation, softmax_table

pytestmark = pytest.mark.usefixtures("float64")

ENVIRONMENT = environment("tiny", STATES, ACTIONS)
POLICY = softmax(ENVIRONMENT)
TOLERANCE = 1e-8

EXACT = jax.jit(lambda params, mdp: exact.gradient(POLICY, params, mdp, DISCOUNT, HORIZON))
EXACT_PRODUCT = jax.jit(lambda params, vector, mdp: jax.jvp(lambda p: EXACT(p, mdp), (params,), (vector,))[1])
G = each(lambda b, params: gradient(POLICY, params, b, DISCOUNT))


@functools.cache
def weighted(kind: str) -> Callable[..., Any]:
    """F(params; tau, behaviour) of every trajectory, as a function of (tau, baseline, params, behaviour)."""
    return each(lambda b, params, behaviour: weighted_gradient(POLICY, params, behaviour, b, DISCOUNT, kind)[0])


@functools.cache
def lambdas(kind: str) -> Callable[..., Any]:
    """Lambda of every trajectory, as a function of (tau, baseline, params, vector)."""
    f = functools.partial(weighted_gradient, POLICY, discount=DISCOUNT, kind=kind)
    return each(lambda b, params, vector: hessian_vector(lambda at, behaviour: f(at, behaviour, b)[0], params, vector))


class Case(NamedTuple):
    """An MDP, all its trajectories, and the values of a fixed baseline on them."""

    mdp: MDP
    tau: Trajectory
    baseline: np.ndarray

    def probability(self, params: Any) -> np.ndarray:
        return enumeration.probabilities(self.mdp, softmax_table(params["logits"]), self.tau)

    def exact(self, params: Any) -> Any:
        return EXACT(params, self.mdp)


def baseline_values(name: str, tau: Trajectory) -> np.ndarray:
    """b(s_t, t) of every trajectory: nothing, any table over (s, t), or a fitted baseline."""
    if name == "none":
        return np.zeros(tau.reward.shape)
    if name == "table":
        return np.array([[3.0, -1.0, 0.5], [-2.0, 4.0, 1.5]])[tau.observation, np.arange(HORIZON)]
    fitted = baselines.make(name, ENVIRONMENT, HORIZON)

    @jax.jit
    def fit_and_predict(tau: Trajectory) -> jax.Array:
        target = jax.vmap(gpomdp.targets, (0, None))(tau.reward, DISCOUNT)
        return jax.vmap(fitted.predict, (None, 0))(fitted.update(fitted.init(), tau, target), tau)

    return np.asarray(fit_and_predict(tau))


@pytest.fixture(scope="module", params=[(False, "none"), (False, "table"), (False, "linear"), (True, "none"), (True, "value")], ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    ending, baseline = request.param
    with jax.enable_x64(True):
        mdp = enumeration.tiny_mdp(ending)
        tau = enumeration.all_trajectories(mdp, ending)
        return Case(mdp, tau, baseline_values(baseline, tau))


def params_at(seed: int) -> dict[str, jax.Array]:
    return random_params(POLICY, seed, 1.0)


def test_enumeration_is_a_distribution(case: Case) -> None:
    """The yardstick itself: 64 trajectories whose probabilities sum to 1."""
    p = case.probability(params_at(0))
    assert p.shape == (64,)
    assert p.min() >= 0.0
    assert abs(p.sum() - 1.0) < 1e-12


def test_gradient_is_unbiased(case: Case) -> None:
    """E[g(tau|th)] = grad J(th), for any baseline b(s_t, t), with and without termination."""
    params = params_at(0)
    g = G(case.tau, case.baseline, params)
    assert_trees_close(expectation(g, case.probability(params)), case.exact(params), atol=TOLERANCE)


@pytest.mark.parametrize("kind", ["trajectory", "prefix"])
def test_weighted_gradient_is_unbiased(case: Case, kind: str) -> None:
    """E_{tau~th}[F(th'; tau, th)] = grad J(th') with th' far from th."""
    behaviour, params = params_at(0), params_at(1)
    f = weighted(kind)(case.tau, case.baseline, params, behaviour)
    mean = expectation(f, case.probability(behaviour))
    assert_trees_close(mean, case.exact(params), atol=TOLERANCE)
    assert largest_difference(mean, case.exact(behaviour)) > 1e-2


@pytest.mark.parametrize("kind", ["trajectory", "prefix"])
def test_hessian_vector_spans_the_difference_of_gradients(case: Case, kind: str) -> None:
    """E_alpha E_{tau~th_a}[Lambda] = grad J(th_rk) - grad J(th_{r-1}), the mean over alpha by Gauss-Legendre."""
    previous, params = params_at(0), params_at(1)
    vector = jax.tree.map(np.subtract, params, previous)
    nodes, weights = np.polynomial.legendre.leggauss(20)

    mean = jax.tree.map(np.zeros_like, params)
    for alpha, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        between = jax.tree.map(lambda old, new, alpha=alpha: alpha * old + (1 - alpha) * new, previous, params)
        at_alpha = expectation(lambdas(kind)(case.tau, case.baseline, between, vector), case.probability(between))
        mean = jax.tree.map(lambda m, x, weight=weight: m + weight * x, mean, at_alpha)
    assert_trees_close(mean, jax.tree.map(np.subtract, case.exact(params), case.exact(previous)), atol=TOLERANCE)


@pytest.mark.parametrize("kind", ["trajectory", "prefix"])
def test_hessian_vector_is_unbiased(case: Case, kind: str) -> None:
    """E[Lambda] = (grad^2 J) v in any direction, against the exact Hessian."""
    params, vector = params_at(2), params_at(3)
    products = lambdas(kind)(case.tau, case.baseline, params, vector)
    exact_product = EXACT_PRODUCT(params, vector, case.mdp)
    assert_trees_close(expectation(products, case.probability(params)), exact_product, atol=TOLERANCE)


def test_direct_policy_is_unbiased_too() -> None:
    """g and F of the table of probabilities, whose params are not free but live on the simplex."""
    mdp = enumeration.tiny_mdp()
    tau, policy = enumeration.all_trajectories(mdp), direct(ENVIRONMENT)
    here, there = (random_params(policy, seed, 0.2) for seed in (0, 1))
    at = enumeration.probabilities(mdp, here["probabilities"], tau)
    zeros = np.zeros(tau.reward.shape)
    wanted = jax.jit(lambda p: exact.gradient(policy, p, mdp, DISCOUNT, HORIZON))
    g = each(lambda b, p: gradient(policy, p, b, DISCOUNT))(tau, zeros, here)
    assert_trees_close(expectation(g, at), wanted(here), atol=TOLERANCE)
    f = each(lambda b, p, q: weighted_gradient(policy, p, q, b, DISCOUNT, "prefix")[0])(tau, zeros, there, here)
    assert_trees_close(expectation(f, at), wanted(there), atol=TOLERANCE)

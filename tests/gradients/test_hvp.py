"""Lambda is the printed formula, and does what a derivative does, for policies that are networks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from fedpg.envs.cartpole import ENVIRONMENT as CARTPOLE
from fedpg.gradients.batch import Batch, weighted_gradient
from fedpg.gradients.hvp import hessian_vector
from fedpg.gradients.importance import KINDS
from fedpg.gradients.rollout import Trajectory
from fedpg.policies import Policy, categorical, gaussian
from helpers.compare import assert_trees_close, normal_like, random_params, tree_dot
from helpers.environments import POINT

pytestmark = pytest.mark.usefixtures("float64")

DISCOUNT, BATCH, HORIZON = 0.9, 2, 3


def make_case(name: str) -> tuple[Policy, Any, Any, Batch]:
    """A policy, random params and direction, and a batch of made-up trajectories of which the second ends early."""
    policy = categorical(CARTPOLE, (4,)) if name == "categorical" else gaussian(POINT, (4,))
    rng, shape = np.random.default_rng(0), (BATCH, HORIZON)
    observation = rng.normal(size=(*shape, 4 if name == "categorical" else 3))
    action = rng.integers(0, 2, shape) if name == "categorical" else rng.normal(size=(*shape, 2))
    mask = np.ones(shape)
    mask[1, 2:] = 0.0
    tau = Trajectory(observation, action, rng.normal(size=shape) * mask, mask)
    params = random_params(policy, 0)
    return policy, params, normal_like(1, params), Batch(tau, rng.normal(size=shape), np.asarray(1.7))


def printed(policy: Policy, params: Any, vector: Any, batch: Batch, b: int) -> Any:
    """<grad log p, v> g + grad <g, v> of trajectory b, step by step as it is printed."""
    s, a, r, mask = (x[b] for x in batch.trajectory)
    steps = [t for t in range(HORIZON) if mask[t]]
    weight = {t: sum(DISCOUNT**h * r[h] for h in steps if h >= t) - DISCOUNT**t * float(batch.baseline[b, t]) for t in steps}

    def log_p(p: Any) -> jax.Array:  # the environment's own factors do not depend on params
        return sum(policy.log_prob(p, s[t], a[t]) for t in steps)

    def g(p: Any) -> Any:
        return jax.grad(lambda q: batch.scale * sum(weight[t] * policy.log_prob(q, s[t], a[t]) for t in steps))(p)

    inner = tree_dot(jax.grad(log_p)(params), vector)
    return jax.tree.map(lambda x, y: inner * x + y, g(params), jax.grad(lambda p: tree_dot(g(p), vector))(params))


@pytest.mark.parametrize("name", ["categorical", "gaussian"])
def test_equals_the_printed_formula(name: str) -> None:
    """The batch mean of <grad log p, v> g + grad <g, v>, each term by its own jax.grad."""
    policy, params, vector, batch = make_case(name)

    @jax.jit
    def mean(params: Any, vector: Any) -> Any:
        return jax.tree.map(lambda *x: sum(x) / BATCH, *(printed(policy, params, vector, batch, b) for b in range(BATCH)))

    product = jax.jit(lambda p, v: hessian_vector(lambda at, by: weighted_gradient(policy, at, by, batch, DISCOUNT)[0], p, v))
    assert_trees_close(product(params, vector), mean(params, vector), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_is_the_derivative_of_f(kind: str) -> None:
    """Central difference of F(th + eps v; tau, th), for every kind of weight."""
    policy, params, vector, batch = make_case("categorical")

    def weighted(at: Any, behaviour: Any) -> Any:
        return weighted_gradient(policy, at, behaviour, batch, DISCOUNT, kind)[0]

    @jax.jit
    def f(epsilon: float) -> Any:
        return weighted(jax.tree.map(lambda p, v: p + epsilon * v, params, vector), params)

    step = 1e-5
    difference = jax.tree.map(lambda up, down: (up - down) / (2 * step), f(step), f(-step))
    product = jax.jit(lambda p: hessian_vector(weighted, p, vector))(params)
    assert_trees_close(product, difference, rtol=1e-5, atol=1e-7)

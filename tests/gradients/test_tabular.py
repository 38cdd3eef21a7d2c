"""Visit counts give the same g, F, Lambda and memory as trajectories do, and the right mean by enumeration."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs.cartpole import ENVIRONMENT as CARTPOLE
from fedpg.envs.tabular import MDP, environment
from fedpg.gradients import batch, exact, tabular
from fedpg.gradients.batch import Choices
from fedpg.gradients.hvp import hessian_vector
from fedpg.gradients.tabular import Visits, all_at_once, step_by_step
from fedpg.policies import categorical, custom, direct, softmax
from helpers import enumeration
from helpers.compare import assert_trees_close, normal_like, random_params
from helpers.enumeration import ACTIONS, DISCOUNT, HORIZON, STATES, expectation, softmax_table
from helpers.slide import SlideHost, hosted

SMALL = environment("small", 4, 3)
TINY = environment("tiny", STATES, ACTIONS)
KINDS = ("trajectory", "truncated", "self-normalised")
CHOICES = Choices(horizon=12, discount=0.9)
KEY = jax.random.key(5)


def everything(way: ModuleType, policy: Any, choices: Choices, params: Any, there: Any, vector: Any, mdp: Any) -> dict:
    """All that an algorithm may ask of a second sample, the first having taught the baseline, with every kind of weight."""
    kinds = KINDS[: 3 if choices.batch_size > 1 else 2]
    own = {kind: way.estimator(SMALL, policy, dataclasses.replace(choices, importance=kind, weight_cap=1.2)) for kind in kinds}
    sample, first = jax.jit(own["trajectory"].sample), own["trajectory"]
    _, memory = sample(KEY, there, mdp, first.init_memory())
    drawn, memory = sample(jax.random.fold_in(KEY, 1), params, mdp, memory)

    @jax.jit
    def ask(drawn: Any) -> dict:
        found = {"usage": first.usage(drawn)._asdict(), "gradient": first.gradient(drawn, params)}
        for kind in kinds:
            f = functools.partial(own[kind].weighted_gradient, drawn)
            found[kind] = f(there, params), hessian_vector(lambda at, behaviour, f=f: f(at, behaviour)[0], params, vector)
        return found

    return {"memory": memory} | ask(drawn)


CASES = [
    (softmax, 3, "value", True),
    (direct, 3, "value", False),
    *(
        pytest.param(make, size, baseline, x64, marks=pytest.mark.slow)
        for make in (softmax, direct, categorical)
        for size, baseline, x64 in [(3, "value", False), (3, "value", True), (1, "none", False), (1, "none", True), (3, "none", True)]
    ),
]


@pytest.mark.parametrize(("make", "size", "baseline", "x64"), CASES)
def test_both_ways_agree(make: Callable, size: int, baseline: str, x64: bool) -> None:
    """From the same key: usage, g, F and its weights, Lambda, and what the baseline learned."""
    with jax.enable_x64(x64):
        policy, choices = make(SMALL), Choices(horizon=12, discount=0.9, batch_size=size, baseline=baseline)
        rng = np.random.default_rng(0)
        mdp = MDP(*map(jnp.asarray, (rng.dirichlet(np.ones(4), (4, 3)), rng.uniform(size=(4, 3)), rng.dirichlet(np.ones(4)))))
        params = random_params(policy, 0, 0.4)
        there = policy.project(jax.tree.map(lambda p, v: p + 0.05 * v, params, normal_like(1, params)))
        counted, kept = (everything(way, policy, choices, params, there, normal_like(2, params), mdp) for way in (tabular, batch))
        assert {x.dtype for x in jax.tree.leaves(counted["gradient"])} == {jnp.zeros(()).dtype}
        scale = max(float(np.abs(x).max()) for x in jax.tree.leaves(kept["trajectory"]))
        rtol = 1e-10 if x64 else 1e-4
        assert_trees_close(counted, kept, rtol=rtol, atol=0.01 * rtol * scale)


def all_visits(mdp: Any, params: Any, tau: Any, way: Callable, baseline: np.ndarray) -> Visits:
    """The visits of every trajectory of the tiny MDP, from random numbers that lead along it; leading axes 64 and B = 1."""
    pi, kernel = softmax_table(params["logits"]), np.asarray(mdp.transition)
    s, a = np.asarray(tau.observation), np.asarray(tau.action)

    def middle(rows: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Uniform numbers in the middle of where `index` is picked."""
        own = np.take_along_axis(rows, index[..., None], -1)[..., 0]
        return np.take_along_axis(np.cumsum(rows, -1), index[..., None], -1)[..., 0] - own / 2

    steps = np.concatenate([middle(kernel[s[:, :-1], a[:, :-1]], s[:, 1:]), np.full((64, 1), 0.5)], axis=1)
    tables = np.cumsum(pi, -1), np.cumsum(kernel, -1), np.asarray(mdp.reward)
    each = jax.vmap(lambda start, actions, steps: way(start, actions, steps, *map(jnp.asarray, tables), DISCOUNT, True))
    found = jax.jit(each)(jnp.asarray(s[:, 0], jnp.int32), middle(pi[s], a), steps)
    coefficient = found.returns - baseline[:, None] * found.discounts
    return jax.tree.map(lambda x: x[:, None], Visits(found.visits, coefficient, found.total_return))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("way", [step_by_step, all_at_once])
def test_unbiased(way: Callable) -> None:
    """Means over all trajectories: E[g] = grad J(th), E[F] = grad J(th'), E[Lambda] = (grad^2 J) v, with any baseline of the state."""
    mdp, policy = enumeration.tiny_mdp(), softmax(TINY)
    tau = enumeration.all_trajectories(mdp)
    params, there, vector = (random_params(policy, seed, 1.0) for seed in range(3))
    drawn = all_visits(mdp, params, tau, way, np.array([3.0, -2.0]))
    np.testing.assert_allclose(drawn.total_return[:, 0], tau.reward.sum(1))

    def estimates(one: Visits) -> tuple:
        def weighted(at: Any, behaviour: Any) -> Any:
            return tabular.weighted_gradient(policy, at, behaviour, one)[0]

        return tabular.gradient(policy, params, one), weighted(there, params), hessian_vector(weighted, params, vector)

    found = expectation(jax.jit(jax.vmap(estimates))(drawn), enumeration.probabilities(mdp, softmax_table(params["logits"]), tau))
    gradient = jax.jit(lambda p: exact.gradient(policy, p, mdp, DISCOUNT, HORIZON))
    wanted = gradient(params), gradient(there), jax.jvp(gradient, (params,), (vector,))[1]
    assert_trees_close(found, wanted, atol=1e-8)


NEEDS_TIME = [{"importance": "prefix"}, {"importance": "truncated-prefix"}, {"baseline": "time"}, {"baseline": "linear"}]
NEEDS_STEPS = [{"normalise_advantages": True}, {"watch_observations": True}]


def test_applies_where_counts_suffice() -> None:
    for choice in ({}, {"baseline": "value"}, {"batch_size": 8}, *({"importance": kind} for kind in KINDS)):
        assert tabular.applies(SMALL, softmax(SMALL), dataclasses.replace(CHOICES, **choice))
    for choice in NEEDS_TIME + NEEDS_STEPS:
        assert not tabular.applies(SMALL, softmax(SMALL), dataclasses.replace(CHOICES, **choice))


def test_applies_to_finite_mdps_and_picked_actions_only() -> None:
    """Not to other environments, not to one whose steps were altered, not to a policy with its own way to draw."""
    policy, altered = softmax(SMALL), SMALL._replace(transition=lambda *step: SMALL.transition(*step))
    for other in (CARTPOLE, altered, hosted(SlideHost())):
        assert not tabular.applies(other, policy, CHOICES)
    own = custom(policy.init, policy.sample, policy.log_prob)
    assert not tabular.applies(SMALL, own, CHOICES)


@pytest.mark.parametrize(("states", "actions", "horizon", "pays"), [(5, 5, 50, True), (50, 20, 50, False), (65, 2, 500, False)])
def test_applies_where_counting_pays(states: int, actions: int, horizon: int, pays: bool) -> None:
    large = environment("large", states, actions)
    assert tabular.applies(large, softmax(large), Choices(horizon=horizon, discount=0.9)) == pays

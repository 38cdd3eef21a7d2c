"""Final J over step-sizes and seeds: every method can be made, and the axes are what they say."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.algorithms import pavg
from fedpg.paper import drift
from fedpg.paper.conflict import BETA, Method, Task, algorithm_of, objectives
from fedpg.paper.sweep import federation, sweep

METHODS = {method.label: method for method, _ in drift.programs(drift.SIZES["full"])}


@pytest.mark.parametrize("label", METHODS)
def test_every_method_can_be_made(label):
    """All names and options exist; the printed algorithms start from u_0."""
    method, task = METHODS[label], Task(local_steps=2)
    problem, _ = federation("conflict", 2, 1.0, horizon=3, discount=0.9, baseline=method.baseline, weights=method.weights)
    made = algorithm_of(problem, task, method)({"beta": 0.3, "eta": 0.1})
    assert made.name == method.algorithm
    assert len(made.warmup) == (method.algorithm in ("fedsvrpg-m", "fedhapg-m"))


def test_options_reach_the_algorithm():
    """An unknown look back is refused, a known one kept."""
    problem, _ = federation("conflict", 2, 1.0, horizon=3, discount=0.9)
    with pytest.raises(Exception, match="lookback"):
        algorithm_of(problem, Task(), Method("x", lookback="sideways"))({"beta": BETA, "eta": 0.1})
    made = algorithm_of(problem, Task(), dataclasses.replace(METHODS["FedSVRPG-S, memory"]))({"beta": BETA, "eta": 0.1})
    _, state = made.init({"logits": jnp.zeros((5, 5))})
    assert state.past != ()


def test_rewards_of_the_families():
    assert Task(heterogeneity=1.5).largest_reward == pytest.approx(10**1.5)
    assert Task(env="random-mdp").largest_reward == 1.0


ETAS = np.array([1e-4, 1e-2])


@pytest.fixture(scope="module")
def found() -> np.ndarray:
    """Five rounds, of which four are plain, of FedSVRPG-S at beta = 0.2 and 1."""
    return objectives(Task(), drift.STABLE, ETAS, seeds=2, root=7, rounds=(0, 5))


def test_axes_are_betas_etas_rounds_seeds(found):
    """J starts the same for every step-size and learns more with a longer one; that of the uniform policy is known."""
    assert found.shape == (2, 2, 2, 2)
    pay = np.mean(10.0 ** np.linspace(-1.0, 1.0, 5)) / 5  # each favourite is taken one time in five
    np.testing.assert_allclose(found[:, :, 0], pay * (1 - 0.9**50) / 0.1, rtol=1e-4)
    assert np.all(found[:, 1, 1] > found[:, 0, 1] + 0.5)
    assert np.all(found[0, 1, 1] != found[1, 1, 1])


def test_pavg_is_the_variant_at_beta_one(found):
    """What the experiments call PAvg computes the numbers of `pavg`."""
    problem, agents_of = federation("conflict", 5, 1.0, horizon=50, discount=0.9, baseline="value")
    plain = sweep(
        problem, lambda s: pavg(problem, local_lr=s["eta"], local_steps=32), agents_of, {"eta": ETAS}, seeds=2, rounds=[5], root=7
    )
    np.testing.assert_allclose(found[1, :, 1], plain.objective[:, :, 0], rtol=1e-6)

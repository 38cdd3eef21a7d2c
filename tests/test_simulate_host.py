"""The same federation, traced and with its environments in Python: same rounds. And what happens when those fail."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fedpg.algorithms import ALGORITHMS
from fedpg.policies import gaussian
from fedpg.problem import policy_gradient
from fedpg.simulate import Simulator
from fedpg.simulate_plain import Debug
from helpers.compare import assert_trees_close
from helpers.federations import SELDOM, claims, each, make
from helpers.slide import TRACED, SlideHost, hosted, members, prepare, widths

SETTINGS = {"horizon": 8, "discount": 0.9, "batch_size": 3, "baseline": "time", "eval_episodes": 4}


def problem_of(environment):
    return policy_gradient(environment, gaussian(TRACED, hidden=(4,)), **SETTINGS)


def host_engine(name: str, host: SlideHost, kind: type = Simulator, seeds: int = 2, **settings):
    problem = problem_of(hosted(host))
    algorithm = make(name, problem, **settings)
    return kind(problem, algorithm, lambda key: members(3), prepare=prepare, host=host, seeds=seeds)


@pytest.mark.parametrize(
    "name", each((name for name in ALGORITHMS if claims(name, "slide")), (*SELDOM, "fedsvrpg-s", "fedpg-br", "fast-fedpg"))
)
def test_every_algorithm_runs_as_if_traced(name):
    engine = host_engine(name, SlideHost())
    problem = problem_of(TRACED)
    plain = Simulator(problem, make(name, problem), lambda key: widths(3), seeds=2)
    for one in (engine, plain):
        one.start()
        one.advance(0, 2)
    assert_trees_close(engine.state(), plain.state(), rtol=1e-3, atol=1e-4)
    assert_trees_close(engine.evaluate(2), plain.evaluate(2), rtol=1e-3, atol=1e-4)
    assert engine.traffic == plain.traffic


@pytest.mark.parametrize("kind", [Simulator, pytest.param(Debug, marks=pytest.mark.slow)])
def test_an_agent_whose_environment_fails_is_left_out_for_that_round(kind):
    host = SlideHost()
    engine = host_engine("pavg", host, kind, seeds=1)
    engine.start()
    engine.advance(0, 1)
    host.broken = {1}
    engine.advance(1, 1)
    host.broken = set()
    engine.advance(2, 1)
    state, events = engine.state(), engine.log.take()
    assert state.refused.tolist() == [[0, 1, 0]]
    assert state.failed.tolist() == [-1]
    assert {(e["round"], e["during"], e["seed"], e["agent"], e["what"]) for e in events} == {(1, "training", 0, 1, "broken")}
    assert engine.log.take() == []
    assert np.isfinite(state.info.usage.total_return).all()


def test_an_agent_that_fails_in_an_evaluation_has_no_return():
    host = SlideHost()
    engine = host_engine("pavg", host)
    engine.start()
    host.broken = {4}
    scores = engine.evaluate(0)
    assert np.isnan(scores.total_return).tolist() == [[False] * 3, [False, True, False]]
    assert {(e["during"], e["seed"], e["agent"]) for e in engine.log.take()} == {("evaluation", 1, 1)}


def test_going_on_from_a_state_is_going_on(tmp_path):
    one, other = host_engine("fedsvrpg-m", SlideHost()), host_engine("fedsvrpg-m", SlideHost())
    one.start()
    one.advance(0, 2)
    other.load(one.state())
    one.advance(2, 2)
    other.advance(2, 2)
    for x, y in zip(jax.tree.leaves(one.state()), jax.tree.leaves(other.state()), strict=True):
        np.testing.assert_array_equal(x, y)

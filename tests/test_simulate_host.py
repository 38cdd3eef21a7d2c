"""The same federation, traced and with its environments in Python: same rounds. And what happens when those fail."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fedpg.algorithms import ALGORITHMS
from fedpg.envs.base import Federation
from fedpg.policies import gaussian
from fedpg.problem import policy_gradient
from fedpg.simulate import simulator
from fedpg.simulate_plain import plain_simulator
from helpers.compare import assert_trees_close
from helpers.federations import SELDOM, claims, each, make
from helpers.slide import TRACED, SlideHost, hosted, members, prepare, widths

SETTINGS = {"horizon": 8, "discount": 0.9, "batch_size": 3, "baseline": "time", "eval_episodes": 4}


def problem_of(environment):
    return policy_gradient(environment, gaussian(TRACED, hidden=(4,)), **SETTINGS)


KEY = jax.random.key(0)


def hosted_sim(name: str, host: SlideHost, engine=simulator, seeds: int = 2, **settings):
    problem = problem_of(hosted(host))
    agents = Federation(problem.environment, lambda key, seed: members(3), prepare)
    return engine(problem, make(name, problem, **settings), agents, seeds=seeds)


@pytest.mark.parametrize("name", each((name for name in ALGORITHMS if claims(name, "slide")), (*SELDOM, "calm", "fedpg-br", "fast-fedpg")))
def test_every_algorithm_runs_as_if_traced(name):
    sim = hosted_sim(name, SlideHost())
    problem = problem_of(TRACED)
    plain = simulator(problem, make(name, problem), widths(3), seeds=2)
    (state, _), (traced, _) = (one.run(one.init(KEY), 2) for one in (sim, plain))
    assert_trees_close(state.rows, traced.rows, rtol=1e-3, atol=1e-4)
    assert_trees_close(sim.evaluate(state), plain.evaluate(traced), rtol=1e-3, atol=1e-4)
    assert sim.communication(state) == plain.communication(traced)


@pytest.mark.parametrize("engine", [simulator, pytest.param(plain_simulator, marks=pytest.mark.slow)])
def test_an_agent_whose_environment_fails_is_left_out_for_that_round(engine):
    host = SlideHost()
    sim = hosted_sim("pavg", host, engine, seeds=1)
    state, _ = sim.run(sim.init(KEY), 1)
    host.broken = {1}
    state, info = sim.run(state, 1)
    host.broken = set()
    assert info.refused.tolist() == [[0, 1, 0]]
    state, info = sim.run(state, 1)
    events = sim.events.take()
    assert info.refused.tolist() == [[0, 0, 0]]
    assert state.rows.failed.tolist() == [-1]
    assert {(e["round"], e["during"], e["seed"], e["agent"], e["what"]) for e in events} == {(1, "training", 0, 1, "broken")}
    assert sim.events.take() == []
    assert np.isfinite(info.local.usage.total_return).all()


def test_an_agent_that_fails_in_an_evaluation_has_no_return():
    host = SlideHost()
    sim = hosted_sim("pavg", host)
    state = sim.init(KEY)
    host.broken = {4}
    assert np.isnan(sim.evaluate(state).returns).tolist() == [[False] * 3, [False, True, False]]
    assert {(e["during"], e["seed"], e["agent"]) for e in sim.events.take()} == {("evaluation", 1, 1)}


def test_going_on_from_a_state_is_going_on():
    one, other = (hosted_sim("fedsvrpg-m", SlideHost()) for _ in range(2))
    state, _ = one.run(one.init(KEY), 2)
    loaded = other.blank(KEY)._replace(round=state.round, rows=jax.tree.map(np.asarray, state.rows))
    ends = [one.run(state, 2)[0].rows, other.run(loaded, 2)[0].rows]
    for x, y in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_array_equal(x, y)

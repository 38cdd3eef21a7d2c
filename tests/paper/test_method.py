"""Every algorithm is a method, and settings reach the algorithm."""

import pytest

from fedpg.algorithms import ALGORITHMS
from fedpg.paper import arena, drift, table_1
from fedpg.paper.method import METHODS, Method
from fedpg.paper.task import Task
from fedpg.quadratic import quadratic

BOWL = quadratic(4)
FINITE = Task("conflict", agents=2, local_steps=2, horizon=3)


def test_every_algorithm_is_a_method():
    assert {method.algorithm for method in METHODS.values()} == set(ALGORITHMS)
    assert set(arena.ENTRANTS) <= set(METHODS)
    assert {METHODS[name].algorithm for name in arena.ENTRANTS} == set(ALGORITHMS) - {"calm-vr"}
    assert set(table_1.CLAIMS) <= set(table_1.EVERYBODY) <= set(METHODS)


@pytest.mark.parametrize("method", [*METHODS.values(), *drift.PRINTED, *drift.VARIANTS], ids=lambda method: method.name)
def test_every_method_can_be_made(method):
    made = method.make(FINITE.problem(method), local_lr=0.1, local_steps=2, batch=1, agents=2)
    assert made.name == method.algorithm


def given(monkeypatch, method, **settings):
    seen = {}

    def factory(problem, *, local_lr, beta=0.5, temperature=1.0, global_lr=None):
        seen.update(local_lr=local_lr, beta=beta, temperature=temperature, global_lr=global_lr)

    monkeypatch.setattr("fedpg.algorithms.factory", lambda name: factory)
    monkeypatch.setattr("fedpg.algorithms.make", lambda name, problem, **chosen: factory(problem, **chosen))
    method.make(BOWL, **settings)
    return seen


def test_settings_replace_options_and_unknown_ones_are_left_out(monkeypatch):
    method = Method("x", "x", {"beta": 0.2}, factor=0.1)
    assert given(monkeypatch, method, local_lr=3.0, global_lr=5.0, rounds=7)["beta"] == 0.2
    seen = given(monkeypatch, method, local_lr=3.0, global_lr=5.0, beta=0.7)
    assert (seen["beta"], seen["local_lr"], seen["global_lr"]) == (0.7, pytest.approx(0.3), pytest.approx(0.5))
    assert given(monkeypatch, Method("x", "x", temperature=True), local_lr=0.05)["temperature"] == pytest.approx(20.0)

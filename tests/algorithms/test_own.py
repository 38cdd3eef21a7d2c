"""Algorithms by name: those of the library, and those that users write."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

from fedpg import trees
from fedpg.algorithms import ALGORITHMS, factory, make
from fedpg.errors import UserError
from fedpg.quadratic import quadratic
from fedpg.simulate_plain import plain_simulator
from helpers.federations import OWN, bowl, run
from helpers.loops import Bowls, walk


def test_the_example_is_what_its_docstring_says(float64):
    """On quadratics without noise: theta <- theta + lambda mean_i sign(th_iK - theta)."""
    small, eta, rate, steps = bowl(), 0.1, 0.03, 3
    algorithm = make(OWN, small.problem, local_lr=eta, global_lr=rate, local_steps=steps)
    ran = run(small, algorithm, 6, engine=plain_simulator)
    b, theta = Bowls(trees.take(ran.state.agents, 0)), np.zeros(4)
    for _ in range(6):
        ends = [walk(theta, lambda th, k, i=i: b.g(i, th), steps, eta)[0] for i in b.all]
        theta = theta + rate * np.mean([np.sign(end - theta) for end in ends], axis=0)
    np.testing.assert_allclose(ran.shared.params[0], theta, rtol=1e-12)
    assert algorithm.name == OWN


def test_the_example_is_short():
    assert len(Path(OWN.rpartition(":")[0]).read_text().splitlines()) <= 40


def test_a_factory_has_the_signature_of_the_function():
    """Options of the command line are read from it."""
    assert list(inspect.signature(factory(OWN)).parameters) == ["problem", "local_lr", "global_lr", "local_steps"]
    assert factory("pavg") is ALGORITHMS["pavg"]


def test_mistakes_are_one_line(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def number(problem):\n    return 3\n\ndef broken(problem):\n    return problem.nothing\n")
    for name, said in (
        ("pavgg", "unknown algorithm 'pavgg': did you mean 'pavg'"),
        (f"{file}:number", "mine.py:number must return a fedpg.Algorithm, not int"),
        (f"{file}:broken", r"mine.py:broken raised AttributeError: .* \(mine.py, line 5\)"),
        (f"{file}:nothing", "unknown function of .*mine.py 'nothing'"),
        (f"{tmp_path}/absent.py:f", "no file .*absent.py"),
    ):
        with pytest.raises(UserError, match=said) as error:
            make(name, quadratic(2))
        assert "\n" not in str(error.value)

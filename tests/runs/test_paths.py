"""On every path that computes gradients: beta = 1 is PAvg, and a resumed run is the whole one, bit for bit."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fedpg import native
from fedpg.runs.config import Config
from fedpg.runs.setup import build, resolve
from fedpg.runs.training import train
from helpers.runs import assert_same_run, final_arrays

TINY = {"agents": 2, "local_steps": 2, "horizon": 6, "batch": 2, "seeds": 2, "rounds": 4, "eval_every": 2, "local_lr": 0.01}
PATHS = {
    "kernel": {"env": "random-mdp"},
    "tables in XLA": {"env": "random-mdp"},
    "lanes": {"env": "cartpole"},
    "matrix products": {"env": "cartpole", "hidden": (32, 32)},
    "MuJoCo": {"env": "hopper", "seeds": 1},
}
SEEN = {"kernel": ["fedpg_visits"], "MuJoCo": ["python"]}
"""Calls out of the program by which a path is recognised."""
SELDOM = ("matrix products", "MuJoCo")


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] if name in SELDOM else []) for name in PATHS])
def path(request, monkeypatch) -> dict:
    """The settings of a path, which is taken."""
    monkeypatch.setenv(native.VARIABLE, "auto" if request.param == "kernel" else "off")
    if request.param == "kernel" and native.why_not("cpu"):
        pytest.skip(native.why_not("cpu"))
    given = TINY | PATHS[request.param]
    sim = build(resolve(Config(algorithm="pavg", **given)))
    text = sim.programs.lower(sim.blank(jax.random.key(0))).as_text()
    for name, marks in SEEN.items():
        assert all(mark in text for mark in marks) == (name == request.param)
    return given


def params(folder) -> dict[str, np.ndarray]:
    """The shared params of a run's checkpoint."""
    found = {name: array for name, array in final_arrays(folder).items() if "shared.params" in name}
    assert found
    return found


def test_beta_one_is_pavg_bit_for_bit(path, tmp_path):
    for name, more in (("fedsvrpg-m", {"beta": 1.0}), ("pavg", {}), ("other", {"beta": 0.5})):
        train(out=tmp_path / name, algorithm="pavg" if name == "pavg" else "fedsvrpg-m", **path, **more)
    momentum, plain, other = (params(tmp_path / name) for name in ("fedsvrpg-m", "pavg", "other"))
    assert momentum.keys() == plain.keys()
    assert all(np.array_equal(momentum[name], plain[name]) for name in plain)
    assert not all(np.array_equal(other[name], plain[name]) for name in plain)


def test_a_resumed_run_is_the_whole_one_bit_for_bit(path, tmp_path):
    settings = path | {"algorithm": "fedsvrpg-m", "beta": 0.5, "u0": 1}
    train(out=tmp_path / "whole", **settings)
    train(out=tmp_path / "half", **settings | {"rounds": 2})
    with np.testing.assert_raises(AssertionError):  # what is compared does differ after half of the rounds
        assert_same_run(tmp_path / "half", tmp_path / "whole")
    train(out=tmp_path / "half", resume=True, rounds=4)
    assert_same_run(tmp_path / "half", tmp_path / "whole")

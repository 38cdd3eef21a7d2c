"""The public names: quick to import, visible to people, editors and type checkers."""

from __future__ import annotations

import subprocess
import sys
import time

import fedpg

PROGRAM = """
from typing import Any, Callable, assert_type

import jax

import fedpg
from fedpg.rounds import Scores
from fedpg.simulate import Info, State

federation = fedpg.envs.make("cartpole", agents=5, heterogeneity=0.5)
assert_type(federation, fedpg.Federation)
policy = fedpg.policies.make("categorical", federation.environment)
assert_type(policy, fedpg.Policy)
problem = fedpg.policy_gradient(federation.environment, policy, horizon=100, discount=0.99)
assert_type(problem, fedpg.Problem)
algorithm = fedpg.chain(fedpg.fedsvrpg_m(problem, local_lr=3e-4), fedpg.robust("median"))
assert_type(algorithm, fedpg.Algorithm)
sim = fedpg.simulator(problem, algorithm, federation, seeds=4)
assert_type(sim, fedpg.Simulator)
state, info = sim.run(sim.init(jax.random.key(0)), rounds=30)
assert_type(state, State)
assert_type(info, Info)
assert_type(sim.evaluate(state), Scores)
assert_type(sim.evaluate(state).returns, jax.Array)
assert_type(fedpg.train(env="cartpole", agents=5, out="runs/mine"), fedpg.Run)
"""


def test_names_are_there_without_waiting_for_jax():
    code = "import sys, fedpg; names = dir(fedpg); assert 'jax' not in sys.modules; print(*names)"
    began = time.perf_counter()
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    took = time.perf_counter() - began
    assert {"simulator", "train", "fedsvrpg_m", "calm", "chain", "policy_gradient", "Config"} <= set(shown)
    bare = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    assert took - (time.perf_counter() - bare) < 0.3


def test_every_public_name_can_be_used():
    for name in fedpg.__all__:
        assert getattr(fedpg, name) is not None
    assert set(fedpg.__all__) >= {name.replace("-", "_") for name in fedpg.algorithms.ALGORITHMS}


def test_a_type_checker_sees_the_right_types(tmp_path):
    """mypy on a user's program; a wrong type must be reported too."""
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(PROGRAM)
    bad.write_text(PROGRAM + "sim.run(state)\nsim.evaluate(state).total_retrun\nfedpg.fedsvrpg(problem)\n")
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), str(good), str(bad)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
    errors = [line for line in found.splitlines() if ": error:" in line]
    assert not [line for line in errors if line.startswith("good.py")], found
    reasons = [line.partition("error: ")[2].split('"')[0] for line in errors]
    assert reasons == ["Missing positional argument ", "", "Module has no attribute "], found

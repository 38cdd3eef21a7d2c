"""`--env module:function`: environments of the user's own, in Python and in JAX, and what is said about mistakes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fedpg.envs import Box, Discrete
from fedpg.envs.host import Member
from fedpg.envs.own import federation, per_agent
from fedpg.errors import UserError
from helpers.host_envs import lanes

EXAMPLES = Path(__file__).parents[2] / "examples"
MODULE = """
from types import SimpleNamespace
import jax.numpy as jnp
from fedpg.envs import Box, Discrete, Environment, Step

calls = []
limit = 3

class Mine:
    def __init__(self, size=2, actions=2, fails=False):
        calls.append((size, actions))
        if fails:
            raise ValueError("no such\\nvalve")
        self.observation_space, self.action_space = Box((size,), -limit, limit), Discrete(actions)

    def reset(self, seed): return [seed] * self.observation_space.shape[0], {}
    def step(self, action): return [1.0] * self.observation_space.shape[0], float(action), False, False, {}

def unseeded():
    return SimpleNamespace(observation_space=Box((1,)), action_space=Discrete(2), reset=lambda: 0, step=lambda action: 0)

def spaceless(): return SimpleNamespace(reset=lambda seed: 0, step=lambda action: 0)
def vector(): return SimpleNamespace(**vars(unseeded()), num_envs=3)
def nothing(): return {}

def transition(key, state, action, params):
    return Step(state, state, params["leak"], jnp.zeros((), bool), jnp.zeros((), bool))

def in_jax(leak, shape=(), alone=False):
    environment = Environment("tank", Box((1,)), Discrete(2), lambda key, params: (jnp.zeros(1), jnp.zeros(1)), transition)
    return environment if alone else (environment, {"leak": jnp.full(shape, leak)})

def other_code(leak):
    environment, params = in_jax(leak)
    return environment._replace(transition=lambda *args: transition(*args)), params

def constants_missing(): return in_jax(0.0)[0], ()
def either(jax): return in_jax(0.0) if jax else Mine()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A current directory with mine.py in it; imports are undone after the test."""
    (tmp_path / "mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name == "mine" or name.startswith("fedpg_own_"):
            del sys.modules[name]


def test_a_python_environment(folder):
    made = federation("mine.py:Mine", 2, {"size": 3, "actions": [4, 4]})
    calls = made.environment.host._free[0][0].__init__.__globals__["calls"]
    assert calls == [(3, 4), (3, 4)]
    assert (made.environment.observation_space, made.environment.action_space) == (Box((3,)), Discrete(4))
    member = made.prepare(Member(np.array([[0, 1], [0, 1]])))
    assert len(calls) == 4
    session = made.environment.host.reset(*lanes(*member.index.ravel()))
    assert len(calls) == 4
    np.testing.assert_array_equal(session.observation[:, 0], [100, 101, 102, 103])
    np.testing.assert_array_equal(session.step(np.array([[0], [1], [2], [3]])).reward, [0, 1, 2, 3])
    assert made.environment.host.events == []


def test_a_jax_environment_stays_in_jax(folder):
    made = federation("mine:in_jax", 3, {"leak": [0.1, 0.2, 0.3]})
    assert made.environment.name == "tank"
    assert made.prepare is None
    np.testing.assert_allclose(made.agents["leak"], [0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mine:", {}, "env 'mine:' must be module:function or path/to/file.py:function"),
        ("mine:Mine", {"fails": [False, True]}, r"mine:Mine raised ValueError: no such valve \(mine.py, line 13\)"),
        ("mine:Mine", {"sise": 2}, "mine:Mine raised TypeError: .*unexpected keyword argument 'sise'"),
        ("mine:Mine", {"size": [2, 3]}, "mine:Mine: agent 1 has observation_space Box.*3,.*, agent 0 has Box.*2,"),
        ("mine:Mine", {"actions": [2, 3]}, "mine:Mine: agent 1 has action_space Discrete.*3.*, agent 0 has Discrete.*2"),
        ("mine:nothing", {}, "mine:nothing returned a dict: expected an environment with Gymnasium's reset and step, or"),
        ("mine:unseeded", {}, "mine:unseeded: reset of SimpleNamespace must take seed="),
        ("mine:spaceless", {}, "mine:spaceless: SimpleNamespace has no observation_space"),
        ("mine:vector", {}, "mine:vector: SimpleNamespace is a vector environment"),
        ("mine:in_jax", {"leak": 1.0, "alone": True}, "mine:in_jax returned a Environment: expected .*or .fedpg.Environment, params."),
        ("mine:in_jax", {"leak": 1.0, "shape": [[1], [2]]}, "mine:in_jax: the agents' params cannot be stacked"),
        ("mine:other_code", {"leak": 1.0}, "mine:other_code: agent 1 runs other code than agent 0"),
        ("mine:constants_missing", {}, "mine:constants_missing: the params .* must hold at least one number"),
        ("mine:either", {"jax": [True, False]}, "mine:either returned an environment in JAX for some agents, in Python for others"),
    ],
)
def test_mistakes_are_reported_in_one_line(folder, name, options, message):
    with pytest.raises(UserError, match=message) as error:
        federation(name, 2, options)
    assert "\n" not in str(error.value)


def test_keyword_arguments_per_agent():
    assert per_agent({}, 2) == [{}, {}]
    assert per_agent({"a": [1, 2], "b": "x", "c": {"d": [1]}, "e": [[7]], "f": [[1], [2]]}, 2) == [
        {"a": 1, "b": "x", "c": {"d": [1]}, "e": [7], "f": [1]},
        {"a": 2, "b": "x", "c": {"d": [1]}, "e": [7], "f": [2]},
    ]
    with pytest.raises(UserError, match="a lists 3 values for 2 agents"):
        per_agent({"a": [1, 2, 3]}, 2)


def test_the_example_is_an_environment():
    made = federation(f"{EXAMPLES / 'python_environment.py'}:make", 2, {"insulation": [8.0, 40.0]})
    assert (made.environment.observation_space, made.environment.action_space) == (Box((2,)), Box((1,), -1.0, 1.0))
    session = made.environment.host.reset(*lanes(0, 1, seeds=[1, 1]))
    steps = [session.step(np.full((2, 1), -1.0)) for _ in range(24)]
    assert steps[-1].truncated.all()
    assert steps[-1].observation[0, 0] < steps[-1].observation[1, 0] < 0
    assert made.environment.host.events == []

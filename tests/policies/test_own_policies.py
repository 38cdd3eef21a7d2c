"""Policies of the user's own: the networks of the examples learn CartPole, and mistakes are reported in one line."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import pytest

from fedpg import envs, policies
from fedpg.algorithms.pavg import pavg
from fedpg.cli import main
from fedpg.errors import UserError
from fedpg.problem import policy_gradient
from fedpg.simulate import simulator

EXAMPLES = Path(__file__).parents[2] / "examples"
SETTINGS = {"horizon": 100, "discount": 0.99, "baseline": "linear", "normalise_advantages": True}


@pytest.mark.parametrize("name", ["flax_policy.py:policy", "flax_policy.py:nnx_policy", "equinox_policy.py:policy"])
def test_the_networks_of_the_examples_learn(name: str) -> None:
    """Two CartPoles, 10 rounds: a random policy lasts about 25 of 100 steps, the learned one more than 60."""
    federation = envs.make("cartpole", agents=2)
    problem = policy_gradient(federation.environment, policies.make(f"{EXAMPLES}/{name}", federation.environment), batch_size=8, **SETTINGS)
    sim = simulator(problem, pavg(problem, local_lr=0.1, local_steps=5), federation)
    state = sim.init(jax.random.key(0))
    before = sim.evaluate(state).returns.mean()
    state, _ = sim.run(state, rounds=10)
    assert before < 35.0
    assert sim.evaluate(state).returns.mean() > 60.0


@pytest.mark.parametrize("name", ["flax_policy.py:policy", pytest.param("equinox_policy.py:policy", marks=pytest.mark.slow)])
def test_fedpg_train_takes_them(name: str, tmp_path: Path) -> None:
    """With scaled observations; the run folder holds the params. The return rises from 25 of 100 to more than 60."""
    flags = "--algorithm pavg --normalise-observations running --agents 2 --rounds 5 --eval-every 5 --batch 8"
    assert main(["train", "--policy", f"{EXAMPLES}/{name}", *flags.split(), "--out", str(tmp_path / "run")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[0]["return"] < 35.0
    assert rows[-1]["return"] > 60.0


OWN = """
import jax, jax.numpy as jnp
from fedpg import policies

def raises(environment): raise KeyError("no\\nlayer")
def nothing(environment): return None
def wrong_shape(environment):
    return policies.custom(
        lambda key: jnp.zeros((7, 2)),
        lambda key, params, observation: jax.random.categorical(key, observation @ params),
        lambda params, observation, action: jax.nn.log_softmax(observation @ params)[action],
    )
"""


@pytest.mark.parametrize(
    ("function", "settings", "message"),
    [
        ("raises", {}, r"own.py:raises raised KeyError: .no.*layer. \(own.py, line 5\)"),
        ("nothing", {}, "own.py:nothing returned a NoneType: expected a fedpg.Policy"),
        ("wrong_shape", {}, r"own.py:wrong_shape raised TypeError: .* \(own.py, line 10\)"),
        ("wrong_shap", {}, "unknown function of .*own.py 'wrong_shap': did you mean 'wrong_shape'"),
        ("nothing", {"hidden": (4,)}, "leave out --hidden"),
    ],
)
def test_mistakes_are_user_errors(function: str, settings: dict, message: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(UserError, match=message) as error:
        policies.make(f"{tmp_path}/own.py:{function}", envs.make("cartpole").environment, **settings)
    assert "\n" not in str(error.value)

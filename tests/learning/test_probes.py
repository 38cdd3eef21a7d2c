"""Probe problems with a known optimum: every algorithm must learn them, and the paper's CartPole at full size (slow)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.algorithms import ALGORITHMS
from fedpg.engines.simulator import Simulator
from fedpg.envs.tabular import MDP, environment
from fedpg.policies import direct, softmax
from fedpg.problem import policy_gradient
from fedpg.store.config import Config
from fedpg.training.loop import train
from helpers.federations import each, home, make


def two_doors(key):
    """Two agents, two states: action 0 pays 1 and stays, action 1 pays nothing. They start in different states.

    The best policy takes action 0 everywhere: J = 1 + gamma + ... for both.
    """
    stay = jnp.eye(2)[:, None, :].repeat(2, axis=1)
    reward = jnp.array([[1.0, 0.0], [1.0, 0.0]])
    return MDP(jnp.stack([stay, stay]), jnp.stack([reward, reward]), jnp.eye(2))


LEARNERS = [name for name in ALGORITHMS if not name.startswith("authors")]
"""The published code is there to be looked at: what it learns is in docs/algorithms/authors-mode.md. Those of
test_exact_learning.py come here only in `make test-slow`."""


@pytest.mark.parametrize("name", each(LEARNERS, ("pavg-projected", "fednpg", "fedkl")))
def test_every_algorithm_finds_the_optimum_of_a_probe(name):
    world = environment("two-doors", 2, 2)
    policy = (direct if home(name) == "direct" else softmax)(world)
    problem = policy_gradient(world, policy, horizon=5, discount=0.9, batch_size=4, baseline="value")
    engine = Simulator(problem, make(name, problem, agents=2, local_lr=0.1, local_steps=5), two_doors, seeds=3)
    engine.start()
    engine.advance(0, 60)
    best = (1 - 0.9**5) / (1 - 0.9)
    assert (engine.evaluate(60).objective > 0.98 * best).all()


@pytest.mark.parametrize("algorithm", ["fedsvrpg-m", "fedhapg-m"])
def test_cartpole_is_learned_in_a_few_rounds(algorithm, tmp_path):
    run = train(Config(algorithm=algorithm, rounds=30, seeds=2, batch=4), tmp_path / "run")
    assert run.rows[0]["return"] < 40
    assert min(run.rows[-1]["return_per_seed"]) > 90


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedsvrpg-m", "fedhapg-m"])
def test_cartpole_at_full_size_reaches_95_and_does_not_collapse(algorithm, tmp_path):
    """The authors' logs: 91.5 at best settings, a third of the runs collapsing."""
    config = Config(env="cartpole", algorithm=algorithm, agents=5, local_steps=10, rounds=250, horizon=100, seeds=10)
    by_round = {row["round"]: np.array(row["return_per_seed"]) for row in train(config, tmp_path / "run").rows}
    assert (by_round[150] >= 95).sum() >= 9
    for round in range(160, 251, 10):
        assert (by_round[round] >= 95).sum() >= 9

"""What needs no sampling finds the optimum that value iteration knows; FedKL with samples too, and on CartPole (slow)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.algorithms import ALGORITHMS
from fedpg.envs.tabular import MDP, environment
from fedpg.policies import make
from fedpg.problem import policy_gradient
from fedpg.runs.config import Config
from fedpg.runs.training import train
from fedpg.simulate import Simulator

STATES, ACTIONS, HORIZON, DISCOUNT = 4, 3, 12, 0.8
WORLD = environment("shared", STATES, ACTIONS)
SETTINGS = {
    "pavg-softmax": ("softmax", {"local_lr": 2.0, "local_steps": 4}, 60),
    "pavg-npg": ("softmax", {"local_lr": 0.2, "local_steps": 4}, 20),
    "pavg-projected": ("direct", {"local_lr": 0.2, "local_steps": 4}, 60),
    "fednpg": ("softmax", {"local_lr": 0.5}, 20),
    "fedkl": ("softmax", {"local_lr": 0.05, "local_steps": 4}, 60),
}
"""Policy, hyper-parameters, rounds."""


def shared_world(key) -> MDP:
    """Three agents who start in different places of one random MDP: one policy is best for all of them."""
    random = np.random.default_rng(3)
    kernel, reward = random.dirichlet(0.3 * np.ones(STATES), size=(STATES, ACTIONS)), random.uniform(size=(STATES, ACTIONS))
    start = random.dirichlet(np.ones(STATES), size=3)
    return MDP(*(jnp.asarray(x, jnp.float32) for x in (np.stack([kernel] * 3), np.stack([reward] * 3), start)))


def best(mdp: MDP) -> np.ndarray:
    """What the best policy, which may look at the clock, earns within the horizon from each agent's start, (3,)."""
    values = np.zeros(STATES)
    for _ in range(HORIZON):
        values = (np.asarray(mdp.reward[0]) + DISCOUNT * np.asarray(mdp.transition[0]) @ values).max(1)
    return np.asarray(mdp.start) @ values


@pytest.mark.parametrize("name", SETTINGS)
def test_the_optimum_of_value_iteration_is_found(name):
    policy, settings, rounds = SETTINGS[name]
    problem = policy_gradient(WORLD, make(policy, WORLD), horizon=HORIZON, discount=DISCOUNT, batch_size=4, baseline="value")
    engine = Simulator(problem, ALGORITHMS[name](problem, **settings), shared_world, seeds=2)
    engine.start()
    top = best(shared_world(None))
    assert (engine.evaluate(0).objective.mean(1) < 0.9 * top.mean()).all()
    engine.advance(0, rounds)
    assert (engine.evaluate(rounds).objective > 0.98 * top).all()


@pytest.mark.slow
def test_fedkl_learns_cartpole_with_its_preset(tmp_path):
    run = train(Config(algorithm="fedkl", rounds=30, seeds=3), tmp_path / "run")
    assert run.rows[0]["return"] < 40
    assert min(run.rows[-1]["return_per_seed"]) > 90

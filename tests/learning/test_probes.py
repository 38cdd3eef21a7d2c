"""A probe with a known optimum, which every algorithm must learn."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import simulate
from fedpg.algorithms import ALGORITHMS
from fedpg.envs.tabular import MDP, environment
from fedpg.policies import direct, softmax
from fedpg.problem import policy_gradient
from fedpg.simulate import simulator
from helpers.federations import OWN, SELDOM, each, home, make

HORIZON, DISCOUNT, ROUNDS = 10, 0.7, 60
SETTINGS = {"fedprox": {"mu": 0.2}, "calm-vr": {"local_lr": 1.0}, OWN: {"global_lr": 0.2}}
"""Where an algorithm needs others than {local_lr 0.5, local_steps 5}: a strong penalty is slow, a filter starts slowly, signs are large."""


def corridor():
    """Three states in a row, two agents that start in the first and in the second. Left at the left end pays 0.3, right at the right
    end pays 1, anything else nothing: the best policy goes right, past what is near.
    """
    left, right = np.array([0, 0, 1]), np.array([1, 2, 2])
    moves = np.eye(3)[np.stack([left, right], axis=1)]
    reward = np.array([[0.3, 0.0], [0.0, 0.0], [0.0, 1.0]])
    return MDP(*(jnp.asarray(x, jnp.float32) for x in (np.stack([moves] * 2), np.stack([reward] * 2), np.eye(3)[:2])))


def value_iteration(mdp):
    """What the best policy, which may look at the clock, earns within the horizon from each agent's start, (2,)."""
    values = np.zeros(3)
    for _ in range(HORIZON):
        values = (np.asarray(mdp.reward[0]) + DISCOUNT * np.asarray(mdp.transition[0]) @ values).max(1)
    return np.asarray(mdp.start) @ values


@pytest.mark.parametrize("name", each([*ALGORITHMS, OWN], SELDOM))
def test_every_algorithm_finds_the_optimum_of_a_probe(name, monkeypatch):
    monkeypatch.setattr(simulate, "COMPILER_OPTIONS", {"cpu": {"xla_backend_optimization_level": 0}})  # it compiles longer than it runs
    world = environment("corridor", 3, 2)
    policy = (direct if home(name) == "direct" else softmax)(world)
    problem = policy_gradient(world, policy, horizon=HORIZON, discount=DISCOUNT, batch_size=4, baseline="value")
    settings = {"local_lr": 0.5, "local_steps": 5} | SETTINGS.get(name, {})
    sim = simulator(problem, make(name, problem, agents=2, **settings), corridor(), seeds=3)
    state, best = sim.init(jax.random.key(0)), value_iteration(corridor())
    assert (sim.evaluate(state).objective < 0.7 * best).all()
    state, _ = sim.run(state, ROUNDS)
    assert (sim.evaluate(state).objective > 0.98 * best).all()

"""Policy files of every kind, with random params, written without training."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np

from fedpg.problem import Problem
from fedpg.runs import policy_files
from fedpg.runs.config import Config
from fedpg.runs.setup import prepare, resolve

ROOM = f"{Path(__file__).parents[2] / 'examples' / 'python_environment.py'}:make"
CRITIC = {"env": ROOM, "env_option": {"insulation": [8.0, 20.0]}, "learner": "actor-critic", "rollout_steps": 6, "horizon": 10}
CASES = {
    "categorical": {"env": "cartpole", "normalise_observations": "off", "horizon": 10},
    "categorical, scaled": {"env": "cartpole", "normalise_observations": "running", "horizon": 10},
    "gaussian": {"env": ROOM, "env_option": {"insulation": [8.0, 20.0]}, "normalise_observations": "off", "horizon": 10},
    "gaussian, scaled": {"env": ROOM, "env_option": {"insulation": [8.0, 20.0]}, "normalise_observations": "running", "horizon": 10},
    "gaussian, with a shared critic": CRITIC | {"policy": "gaussian", "share": "critic", "normalise_observations": "off"},
    "gaussian-state, with a critic": CRITIC | {"policy": "gaussian-state"},
    "tanh-gaussian": {"env": ROOM, "env_option": {"insulation": [8.0, 20.0]}, "policy": "tanh-gaussian", "horizon": 10},
    "softmax": {"env": "random-mdp", "horizon": 10},
    "direct": {"env": "random-mdp", "policy": "direct", "horizon": 10},
    "network on states": {"env": "random-mdp", "policy": "categorical", "hidden": (8,), "horizon": 10},
}


def random_params(problem: Problem, axes: tuple[int, ...], seed: int = 0):
    """Params far from their start; leaves that must be positive (probabilities, deviations) stay so."""
    generator = np.random.default_rng(seed)
    shapes = jax.eval_shape(problem.init_params, jax.random.key(0))

    def leaf(path, x):
        values = generator.normal(size=(*axes, *x.shape)).astype(np.float32)
        positive = any(word in jax.tree_util.keystr(path) for word in ("probabilities", "deviation"))
        return np.exp(values) if positive else values

    return jax.tree_util.tree_map_with_path(leaf, shapes)


def written(folder: Path, case: str, seeds: int = 1, personal: bool = False, returns: list | None = None, **more):
    """Writes the policies of a case; returns its problem and its params with leading axes."""
    settings = {"algorithm": "local-only" if personal else "pavg", "agents": 2, "rounds": 1, "seeds": seeds} | CASES[case] | more
    config = resolve(Config(**settings))
    problem = prepare(config).problem
    params = random_params(problem, (seeds, 2) if personal else (seeds,))
    row = {"round": 1, "return_per_seed": returns or [1.0] * seeds, "return_per_agent": [1.0, 2.0]}
    policy_files.write(folder, config, problem, params, row)
    return problem, params


def observations(problem: Problem, count: int = 1000) -> np.ndarray:
    """Observations as the environment gives them."""
    generator, space = np.random.default_rng(1), problem.environment.observation_space
    if hasattr(space, "n"):
        return generator.integers(space.n, size=count)
    return generator.normal(scale=3.0, size=(count, *space.shape)).astype(np.float32)


def balancing(sign):
    """Params of a policy for CartPole that pushes towards the side to which the pole falls, or with sign -1 away from it."""
    lean = np.zeros((4, 4), np.float32)
    lean[2:, 0] = 1.0  # angle and angular velocity, into the first hidden unit
    choice = np.zeros((4, 2), np.float32)
    choice[0] = -sign, sign
    return {"layers": [{"matrix": lean, "bias": np.zeros(4, np.float32)}, {"matrix": 5 * choice, "bias": np.zeros(2, np.float32)}]}

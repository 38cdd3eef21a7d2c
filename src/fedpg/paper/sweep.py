"""One algorithm over a grid of settings and many seeds, measured along the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import policies
from fedpg.algorithms.base import Algorithm
from fedpg.envs import worlds
from fedpg.problem import Problem, policy_gradient
from fedpg.simulate import AgentsOf, Simulator


class Sweep(NamedTuple):
    """What was measured, for P settings, S seeds and T evaluated rounds.

    Attributes:
        rounds: which rounds were evaluated, (T,).
        total_return: mean over agents, undiscounted, (P, S, T).
        objective: J, (P, S, T).
        grad_norm_sq: |grad J|^2, (P, S, T); None where it cannot be computed exactly.
        trajectories: used by the whole federation since the start, (P, S, T).
    """

    rounds: np.ndarray
    total_return: np.ndarray
    objective: np.ndarray
    grad_norm_sq: np.ndarray | None
    trajectories: np.ndarray


def federation(
    env: str, agents: int, heterogeneity: float, env_options: dict[str, Any] | None = None, **settings: Any
) -> tuple[Problem, AgentsOf]:
    """The problem of a compiled environment (not MuJoCo's, not one in Python) and how its agents are made.

    `settings` are those of `policy_gradient`.
    """
    world = worlds.make_world(env, agents, heterogeneity, env_options or {}, "auto")
    return policy_gradient(world.environment, policies.make("auto", world.environment), **settings), world.agents_of


def sweep(
    problem: Problem,
    algorithm_of: Callable[[Any], Algorithm],
    agents_of: AgentsOf,
    settings: dict[str, Any],
    *,
    seeds: int,
    rounds: list[int],
    root: int = 0,
    tell: Callable[[float], None] = lambda share: None,
) -> Sweep:
    """Runs every setting (a dictionary of arrays with leading axis P) on every seed and evaluates after `rounds`.

    A seed has the same agents and random numbers in every setting. A seed that failed (not finite) is NaN from then on.
    """
    grid = {name: jnp.asarray(values, float) for name, values in settings.items()}
    # GPUs round matrix products to TF32 unless told otherwise.
    with jax.default_matmul_precision("highest"):
        return _measured(Simulator(problem, algorithm_of, agents_of, root=root, seeds=seeds, settings=grid), rounds, tell)


def _measured(engine: Simulator, rounds: list[int], tell: Callable[[float], None]) -> Sweep:
    engine.start()
    done, found, used = 0, [], np.zeros(engine.rows)
    for target in rounds:
        if target > done:
            engine.advance(done, target - done)
        done = target
        scores, state = engine.evaluate(done), engine.state()
        used = used + state.info.usage.trajectories
        engine.reset_info()
        lost = np.where(state.failed >= 0, np.nan, 0.0)
        gradient = None if scores.grad_norm_sq is None else scores.grad_norm_sq + lost
        found.append((scores.total_return.mean(1) + lost, scores.objective.mean(1) + lost, gradient, used))
        tell(done / rounds[-1])

    def stacked(column: int) -> np.ndarray | None:
        parts = [entry[column] for entry in found]
        return None if parts[0] is None else np.stack(parts, axis=-1).reshape(-1, engine.seeds, len(rounds))

    return Sweep(np.array(rounds), *(stacked(column) for column in range(4)))


def cross(**axes: Any) -> dict[str, np.ndarray]:
    """All combinations of the given values as settings, the last varying fastest.

    >>> {name: values.tolist() for name, values in cross(a=[1, 2], b=[5, 6]).items()}
    {'a': [1, 1, 2, 2], 'b': [5, 6, 5, 6]}
    """
    return {name: grid.ravel() for name, grid in zip(axes, np.meshgrid(*axes.values(), indexing="ij"), strict=True)}

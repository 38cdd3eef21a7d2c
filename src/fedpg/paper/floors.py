"""Where algorithms settle with exact gradients and a constant step-size: |grad J|^2 at the fixed point.

At a fixed point u = 0, so the server's step-size does not matter and is chosen to get there fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpg import policies
from fedpg.algorithms import fedhapg_s, fedsvrpg_m, fedsvrpg_s
from fedpg.envs import tabular
from fedpg.exact_problem import exact_problem
from fedpg.paper.doors import doors
from fedpg.paper.sweep import cross, sweep
from fedpg.problem import Problem
from fedpg.quadratic import bowls, quadratic
from fedpg.report.stats import Estimate, estimate
from fedpg.simulate import AgentsOf

LOCAL_STEPS = 8
PRINTED, STABLE, MEMORY = "FedSVRPG-M", "FedSVRPG-S", "FedSVRPG-S, memory"
ALGORITHMS: dict[str, Callable[..., Any]] = {
    PRINTED: fedsvrpg_m,
    STABLE: fedsvrpg_s,
    MEMORY: lambda problem, **given: fedsvrpg_s(problem, lookback="memory", **given),
    "FedSVRPG-S, sample": lambda problem, **given: fedsvrpg_s(problem, lookback="sample", **given),
    "FedHAPG-S": fedhapg_s,
}
"""FedSVRPG-M and FedSVRPG-S are PAvg at beta = 1."""


class Place(NamedTuple):
    """A kind of problem with an interior stationary point.

    Attributes:
        label: for people.
        make: () -> the problem; called in double precision.
        agents_of: makes the agents of a seed.
        etas: step-sizes small enough for the leading order.
        global_lr: the server's.
    """

    label: str
    make: Callable[[], Problem]
    agents_of: AgentsOf
    etas: tuple[float, ...]
    global_lr: float


def _exact_doors() -> Problem:
    environment = tabular.environment("doors", 3, 3)
    return exact_problem(environment, policies.make("softmax", environment), discount=0.9)


BOWLS = Place("bowls", quadratic, lambda key: bowls(key, 5, 0.5), (0.001, 0.002, 0.004, 0.008), 0.3)
DOORS = Place("doors", _exact_doors, doors, (0.0125, 0.025, 0.05, 0.1), 5.0)


class Floors(NamedTuple):
    """|grad J|^2 where an algorithm settled.

    Attributes:
        betas, etas: (B,) and (E,).
        local_steps: K.
        at: (B, E, S).
        unsettled: the largest relative change of a floor over the last tenth of the run, beta = 0 left out, where the floor is 0.
    """

    betas: np.ndarray
    etas: np.ndarray
    local_steps: int
    at: np.ndarray
    unsettled: float


def measure(
    place: Place,
    algorithm: str,
    betas: tuple[float, ...],
    *,
    rounds: int,
    seeds: int,
    root: int = 0,
    local_steps: int = LOCAL_STEPS,
) -> Floors:
    """Runs to the fixed point, in double precision. `place.etas` are those of K = LOCAL_STEPS: eta K is kept for another K."""
    etas = np.array(place.etas) * LOCAL_STEPS / local_steps
    with jax.enable_x64(True):
        problem = place.make()

        def algorithm_of(setting: dict[str, Any]) -> Any:
            steps = {"local_lr": setting["eta"], "global_lr": place.global_lr, "local_steps": local_steps}
            return ALGORITHMS[algorithm](problem, beta=setting["beta"], **steps)

        grid = cross(beta=betas, eta=etas)
        found = sweep(problem, algorithm_of, place.agents_of, grid, seeds=seeds, rounds=[9 * rounds // 10, rounds], root=root).grad_norm_sq
    found = found.reshape(len(betas), len(etas), seeds, 2)
    moved = np.abs(found[..., 0] / np.maximum(found[..., 1], 1e-300) - 1.0)[np.array(betas) > 0]
    return Floors(np.array(betas), etas, local_steps, found[..., 1], float(moved.max()))


def slope(x: np.ndarray, y: np.ndarray) -> Estimate:
    """Fitted exponent p of y ~ x^p for each seed, then mean and interval over seeds; x (T,), y (T, S).

    >>> print(slope(np.array([1.0, 2.0, 4.0]), np.array([[1.0, 3.0], [4.0, 12.0], [16.0, 48.0]])))
    2.0 [2.0, 2.0]
    """
    return estimate(np.polyfit(np.log(x), np.log(y), 1)[0])


def ratio(above: np.ndarray, below: np.ndarray) -> Estimate:
    """Geometric mean over seeds of above / below, with its interval."""
    return typical(above / below)


def typical(values: np.ndarray) -> Estimate:
    """Geometric mean over seeds with its interval; zeros count as 1e-300."""
    found = estimate(np.log(np.maximum(values, 1e-300)))
    return Estimate(*(np.exp(value) for value in found[:3]), found.seeds)

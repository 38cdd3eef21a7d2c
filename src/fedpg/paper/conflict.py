"""Final J of an algorithm on agents that conflict (or other finite MDPs), for many step-sizes and seeds in one program."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fedpg.algorithms import ALGORITHMS, Algorithm
from fedpg.paper.kept import part
from fedpg.paper.sweep import cross, federation, sweep
from fedpg.runs.setup import OWN_U0

HORIZON, DISCOUNT, BATCH = 50, 0.9, 1
BETA, PLAIN = 0.2, 1.0
"""beta of every algorithm, unless it says otherwise, and that of PAvg."""
TUNED_ON = (
    "conflict with heterogeneity 0.7, 1 and 1.3, 5 states and 5 actions or 8 and 4, N=3, 4, 5, 10 and 20, K=1, 4, 8, 16, 32, 64 and 128, "
    "random-mdp with own rewards, seeds of roots 3, 7 and 77003, eta from 1e-3 to 4e-1 (0.2 and 0.4 are left out of the grids because "
    "every algorithm was bad there), and CartPole with heterogeneity 2, K=10, 16, 32 and 128"
)
"""The tuning set: what was looked at while the stabilised variants were designed."""


@dataclasses.dataclass(frozen=True)
class Task:
    """What is learned. The defaults are in the tuning set."""

    label: str = "conflict"
    """For people."""
    env: str = "conflict"
    """A family of finite MDPs."""
    agents: int = 5
    """N."""
    heterogeneity: float = 1.0
    """Of the family."""
    options: tuple[tuple[str, Any], ...] = ()
    """The family's other options, (name, value)."""
    local_steps: int = 32
    """K."""
    rounds: int = 100
    """R."""

    @property
    def largest_reward(self) -> float:
        """Gradients grow with it, so that steps of the same length need step-sizes that shrink with it."""
        return 10.0**self.heterogeneity if self.env == "conflict" else 1.0


@dataclasses.dataclass(frozen=True)
class Method:
    """An algorithm and how its gradients are estimated."""

    label: str
    """For people."""
    algorithm: str = "fedsvrpg-s"
    """As `--algorithm` calls it."""
    betas: tuple[float, ...] = (BETA,)
    """All in one program. FedSVRPG-S at 1 is PAvg, and computes the same numbers."""
    lookback: str = ""
    """Of the stabilised algorithms; empty for their default."""
    weights: str = "trajectory"
    """Importance weights."""
    baseline: str = "value"
    """Subtracted from returns."""


STABLE, HESSIAN = Method("FedSVRPG-S", betas=(BETA, PLAIN)), Method("FedHAPG-S", "fedhapg-s")
"""The stabilised variants; the first with PAvg in the same program."""


def algorithm_of(problem: Any, task: Task, method: Method) -> Callable[[dict[str, Any]], Algorithm]:
    """From {beta, eta} to the algorithm. Where its theorem prescribes an initial direction, from ceil(K/(R beta^2)) batches."""
    fixed: dict[str, Any] = {"local_steps": task.local_steps}
    if method.algorithm in OWN_U0:
        fixed["u0_batches"] = math.ceil(task.local_steps / (task.rounds * min(method.betas) ** 2))
    if method.lookback:
        fixed["lookback"] = method.lookback
    return lambda setting: ALGORITHMS[method.algorithm](problem, beta=setting["beta"], local_lr=setting["eta"], **fixed)


def objectives(
    task: Task,
    method: Method,
    etas: np.ndarray,
    *,
    seeds: int,
    root: int,
    rounds: tuple[int, ...] = (),
    tell: Callable[[float], None] = lambda share: None,
) -> np.ndarray:
    """J after `rounds` (left out, the task's last), axes (betas, etas, rounds, seeds)."""
    problem, agents_of = federation(
        task.env, task.agents, task.heterogeneity, dict(task.options),
        horizon=HORIZON, discount=DISCOUNT, batch_size=BATCH, baseline=method.baseline, weights=method.weights,
    )  # fmt: skip
    grid, when = cross(beta=method.betas, eta=etas), list(rounds or (task.rounds,))
    named = ("objectives", task, method, tuple(etas), seeds, root, when)
    make, sized = algorithm_of(problem, task, method), {"seeds": seeds, "rounds": when, "root": root, "tell": tell}
    found = part(named, lambda: sweep(problem, make, agents_of, grid, **sized))
    return found.objective.reshape(len(method.betas), len(etas), seeds, len(when)).swapaxes(2, 3)

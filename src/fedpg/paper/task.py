"""Tasks: environment families with their sizes, as experiments learn on them, and how a method is measured on one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import envs, policies
from fedpg.envs import Federation, tabular
from fedpg.paper.cache import cached
from fedpg.paper.doors import doors
from fedpg.paper.method import Method
from fedpg.problem import Problem, exact_policy_gradient, policy_gradient
from fedpg.quadratic import bowls, quadratic
from fedpg.runs.sweep import Curves, curves
from fedpg.simulate import Simulator, simulator


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment family, the size of the federation, and how gradients are estimated."""

    name: str
    """Identifies it in results."""
    env: str = "conflict"
    """A built-in family, or `doors` or `quadratics`, which only experiments use."""
    agents: int = 5
    """N."""
    heterogeneity: float = 1.0
    """Of the family."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The family's other options."""
    local_steps: int = 32
    """K."""
    rounds: int = 100
    """R."""
    horizon: int = 50
    """H."""
    discount: float = 0.9
    """gamma."""
    batch: int = 1
    """Trajectories per local step."""
    baseline: str = "value"
    """Subtracted from returns."""
    importance: str = "trajectory"
    """Kind of importance weight."""
    eval_episodes: int = 32
    """Episodes of an evaluation, where it is not exact."""
    exact: bool = False
    """Exact gradients instead of sampled ones."""

    def federation(self) -> Federation:
        """The environment and its agents."""
        if self.env == "quadratics":
            return Federation(None, lambda key, seed: bowls(key, self.agents, self.heterogeneity))
        if self.env == "doors":
            return Federation(tabular.environment("doors", 3, 3), lambda key, seed: doors(key, self.agents))
        return envs.make(self.env, self.agents, self.heterogeneity, self.options)

    def problem(self, method: Method) -> Problem:
        """The problem that a method learns."""
        if self.env == "quadratics":
            return quadratic()
        environment = self.federation().environment
        policy = policies.make(method.policy, environment)
        if self.exact:
            return exact_policy_gradient(environment, policy, discount=self.discount)
        return policy_gradient(
            environment, policy, horizon=self.horizon, discount=self.discount, batch_size=self.batch,
            baseline=method.baseline or self.baseline, importance=method.importance or self.importance, eval_episodes=self.eval_episodes,
        )  # fmt: skip

    def simulator(self, method: Method, settings: dict[str, Any], seeds: int, **fixed: Any) -> Simulator:
        """A simulator of the method in all settings, arrays (P,) by name; `fixed` are settings that shape the program."""
        problem = self.problem(method)
        given = {"local_steps": self.local_steps, "batch": self.batch, "agents": self.agents} | fixed
        grid = {name: jnp.asarray(values, float) for name, values in settings.items()}
        return simulator(problem, lambda setting: method.make(problem, **given | setting), self.federation(), seeds=seeds, settings=grid)


def measure(
    task: Task,
    method: Method,
    settings: dict[str, Any],
    *,
    seeds: int,
    root: int = 0,
    rounds: Sequence[int] = (),
    tell: Callable[[float], None] = lambda share: None,
    **fixed: Any,
) -> Curves:
    """Runs a method in all settings on all seeds and evaluates after `rounds`, by default the task's last; cached.

    A seed has the same agents and random numbers in every setting. Exact gradients are computed in double precision.
    """
    when = list(rounds or (task.rounds,))
    named = (task, method, {name: np.asarray(values).tolist() for name, values in settings.items()}, seeds, root, when, fixed)

    def make() -> Curves:
        with jax.enable_x64(task.exact or jax.config.jax_enable_x64):
            return curves(task.simulator(method, settings, seeds, **fixed), jax.random.key(root), when, tell=tell)

    return cached(named, make)

"""Who enters the `arena`, with which settings, and the grounds they meet on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg import policies, trees
from fedpg.algorithms import ALGORITHMS, Algorithm
from fedpg.envs import tabular, worlds
from fedpg.keys import Purpose, agent_key
from fedpg.problem import Problem, policy_gradient
from fedpg.simulate import AgentsOf

AGENTS, BETA, ROOT = 5, 0.2, 61
RANDOM, CONFLICT, CARTPOLE = "random MDPs", "conflict MDPs", "CartPole"


class Entry(NamedTuple):
    """An algorithm and what its factory is given besides local_lr and local_steps.

    Attributes:
        algorithm: as `--algorithm` calls it.
        options: of its factory.
        factor: what local_lr is multiplied with, where it does not multiply a gradient.
        inverse: the option that is given 1 / local_lr, where there is no local_lr.
        exact: draws nothing, and is for finite MDPs only.
        policy: on finite MDPs.
        baseline: on finite MDPs.
    """

    algorithm: str
    options: dict[str, Any] = {}  # noqa: RUF012
    factor: float = 1.0
    inverse: str = ""
    exact: bool = False
    policy: str = "softmax"
    baseline: str = "value"


MOMENTUM = {"beta": BETA}
# cuts every entry of its directions at 0.05 or 0.1 and divides its steps; needs whole trajectories
AUTHORS: dict[str, Any] = {"options": MOMENTUM, "factor": 30.0, "baseline": "time"}
ENTRIES = (
    Entry("pavg"),
    Entry("fedsvrpg-m", MOMENTUM),
    Entry("fedhapg-m", MOMENTUM),
    Entry("fedsvrpg-s", MOMENTUM),
    Entry("fedhapg-s", MOMENTUM),
    Entry("heavy-ball", MOMENTUM),
    Entry("fedavg-m", MOMENTUM),
    Entry("mfpo", MOMENTUM),
    Entry("nharpg", MOMENTUM),
    Entry("scaffold"),
    Entry("fedprox", {"mu": 1.0}),
    Entry("fast-fedpg"),
    Entry("fedpg-br", {"filtered": False}),  # nobody attacks, and its filter takes agents that differ for attackers
    Entry("fedkl", {"epochs": 10}, factor=0.1),
    Entry("authors-svrpg", **AUTHORS),
    Entry("authors-hapg", **AUTHORS),
    Entry("local-only"),
    Entry("pooled", {"agents": AGENTS}),
    Entry("pavg-softmax", exact=True),
    Entry("pavg-npg", factor=0.1, exact=True),
    Entry("pavg-projected", factor=0.1, exact=True, policy="direct"),
    Entry("fednpg", factor=0.1, exact=True),
    Entry("fapi", inverse="temperature", exact=True),
)
BY_NAME = {entry.algorithm: entry for entry in ENTRIES}


class Ground(NamedTuple):
    """What one program runs on: one task, or two that have the same shapes.

    Attributes:
        tasks: their labels; seeds are numbered through, task by task.
        problem: (entry) -> the problem.
        agents_of: (seeds of each task) -> what makes a seed's agents.
        local_lrs: the grid.
        local_steps: K.
        batch: trajectories per local step.
    """

    tasks: tuple[str, ...]
    problem: Callable[[Entry], Problem]
    agents_of: Callable[[int], AgentsOf]
    local_lrs: tuple[float, ...]
    local_steps: int
    batch: int


FINITE_SETTINGS = {"horizon": 40, "discount": 0.9, "batch_size": 1, "weights": "truncated"}
CARTPOLE_SETTINGS = {
    "horizon": 100, "discount": 0.99, "batch_size": 8, "weights": "truncated", "baseline": "time", "eval_episodes": 32,
}  # fmt: skip
STATES, ACTIONS, HETEROGENEITY = 5, 5, 1.0
"""Of every task: kernels of their own, conflicting rewards over two orders of magnitude, poles within a factor 2."""


def finite_problem(entry: Entry) -> Problem:
    environment = tabular.environment("arena", STATES, ACTIONS)
    return policy_gradient(environment, policies.make(entry.policy, environment), baseline=entry.baseline, **FINITE_SETTINGS)


def finite_agents(seeds: int) -> AgentsOf:
    """Random MDPs for the first `seeds` seeds, conflicting ones for as many after them."""

    def agents_of(key: jax.Array) -> Any:
        later = jax.vmap(lambda seed: jax.random.key_data(agent_key(ROOT, seed, 0, 0, Purpose.AGENTS)))(seeds + jnp.arange(seeds))
        second = jnp.any(jnp.all(later == jax.random.key_data(key), axis=-1))
        random = tabular.random_mdps(key, AGENTS, HETEROGENEITY, tabular.RandomMDPOptions(STATES, ACTIONS))
        return trees.select(second, tabular.conflicting_mdps(key, AGENTS, HETEROGENEITY, tabular.ConflictOptions(STATES, ACTIONS)), random)

    return agents_of


def cartpole_problem(entry: Entry) -> Problem:
    world = worlds.make_world("cartpole", AGENTS, HETEROGENEITY, {}, "auto")
    return policy_gradient(world.environment, policies.make("auto", world.environment), **CARTPOLE_SETTINGS)


def cartpole_agents(seeds: int) -> AgentsOf:
    return worlds.make_world("cartpole", AGENTS, HETEROGENEITY, {}, "auto").agents_of


GROUNDS = {
    "finite": Ground((RANDOM, CONFLICT), finite_problem, finite_agents, (0.003, 0.01, 0.03, 0.1, 0.3, 1.0), 16, 1),
    "cartpole": Ground((CARTPOLE,), cartpole_problem, cartpole_agents, (1e-3, 3e-3, 1e-2, 3e-2), 4, 8),
}


def make(entry: Entry, problem: Problem, local_lr: Any, local_steps: int, batch: int) -> Algorithm:
    """The entry's algorithm."""
    factory = ALGORITHMS[entry.algorithm]
    given = {"local_lr": entry.factor * local_lr, "local_steps": local_steps, "batch": batch} | entry.options
    if entry.inverse:
        given[entry.inverse] = 1.0 / local_lr
    return factory(problem, **{name: value for name, value in given.items() if name in inspect.signature(factory).parameters})

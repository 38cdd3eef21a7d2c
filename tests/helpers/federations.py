"""Small federations that run in milliseconds, for whatever needs one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fedpg import policies
from fedpg.algorithms import ALGORITHMS, Algorithm
from fedpg.envs import family
from fedpg.problem import Problem, policy_gradient
from fedpg.quadratic import bowls, quadratic

STEPS = {"local_lr": 0.02, "local_steps": 3}
MOMENTUM = ("fedsvrpg-m", "fedhapg-m", "fedsvrpg-s", "fedhapg-s", "heavy-ball", "mfpo", "fedavg-m", "nharpg")


class Small(NamedTuple):
    """A problem and how its agents are made."""

    problem: Problem
    agents_of: Callable[[jax.Array], Any]


def rl(env: str, agents: int = 3, policy: str = "auto", **settings: Any) -> Small:
    """A few agents of a family of environments, short horizon."""
    kind = family(env)
    environment = kind.environment(kind.options())
    chosen = {"horizon": 6, "discount": 0.9, "batch_size": 2, "baseline": "time"} | settings
    problem = policy_gradient(environment, policies.make(policy, environment), **chosen)
    return Small(problem, functools.partial(_agents, env, agents))


def _agents(env: str, agents: int, key: jax.Array) -> Any:
    return family(env).agents(key, agents, 1.0, family(env).options())


def bowl(agents: int = 3, noise: float = 0.0) -> Small:
    """Heterogeneous quadratics."""
    return Small(quadratic(4, noise), lambda key: bowls(key, agents, 0.5))


SMALL = {
    "bowl": functools.partial(bowl, noise=0.3),
    "random-mdp": functools.partial(rl, "random-mdp"),
    "direct": functools.partial(rl, "random-mdp", policy="direct", baseline="none"),
    "cartpole": functools.partial(rl, "cartpole", horizon=20, baseline="linear"),
}


def make(name: str, problem: Problem, agents: int = 3, **settings: Any) -> Algorithm:
    """The algorithm called `name` with small steps, or other settings."""
    own = {"beta": 0.3} if name in MOMENTUM else {"agents": agents} if name == "pooled" else {}
    return ALGORITHMS[name](problem, **(STEPS | own | settings))

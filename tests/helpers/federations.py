"""Small federations that run in milliseconds, for whatever needs one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import pytest

from fedpg import policies
from fedpg.algorithms import Algorithm, factory
from fedpg.envs import family
from fedpg.problem import Problem, policy_gradient
from fedpg.quadratic import bowls, quadratic
from fedpg.simulate import simulator

STEPS = {"local_lr": 0.02, "local_steps": 3}
EXACT = ("pavg-softmax", "pavg-npg", "fednpg", "fapi", "pavg-projected")
"""Algorithms that draw nothing."""
RARELY = ("pavg-softmax", "pavg-npg")
"""Algorithms that go through the tables of tests only in `make test-slow`: one line away from another."""
SELDOM = ("fedkl", "nharpg", "heavy-ball", "fedprox", "fedavg-m", "mfpo", "pooled", "local-only")
"""Algorithms whose agent half calls nothing of a problem that the others do not call: in tables that take seconds a line, only in
`make test-slow`."""
CLAIMS = {
    **dict.fromkeys(EXACT, ("random-mdp",)),
    "pavg-projected": ("direct",),
    "fapi": ("random-mdp", "direct"),
    "fedkl": ("random-mdp", "direct", "cartpole", "slide"),
}
"""The worlds that an algorithm is for, where those are not all; the first is where it is tested most. slide: Gaussian actions."""
OWN = f"{Path(__file__).parents[2]}/examples/own_algorithm.py:sign_averaging"
"""An algorithm that a user wrote."""
MOMENTUM = ("fedsvrpg-m", "fedhapg-m", "calm", "heavy-ball", "mfpo", "fedavg-m", "nharpg")


class Small(NamedTuple):
    """A problem and the function (key, seed) -> its agents."""

    problem: Problem
    agents: Callable[..., Any]


class Ran(NamedTuple):
    """A simulator and what it returned."""

    sim: Any
    state: Any
    info: Any

    @property
    def shared(self) -> Any:
        """What the server would broadcast, leading axis rows."""
        return self.state.rows.server.shared


def run(small: Small, algorithm: Algorithm, rounds: int, seeds: int = 1, engine: Any = simulator) -> Ran:
    """Some rounds from the key 0. `engine` is `simulator` or `plain_simulator`."""
    sim = engine(small.problem, algorithm, small.agents, seeds=seeds)
    return Ran(sim, *sim.run(sim.init(jax.random.key(0)), rounds))


def rl(env: str, agents: int = 3, policy: str = "auto", **settings: Any) -> Small:
    """A few agents of a family of environments, short horizon."""
    kind = family(env)
    environment = kind.environment(kind.options())
    chosen = {"horizon": 6, "discount": 0.9, "batch_size": 2, "baseline": "time"} | settings
    problem = policy_gradient(environment, policies.make(policy, environment), **chosen)
    return Small(problem, functools.partial(_agents, env, agents))


def _agents(env: str, agents: int, key: jax.Array, seed: Any = 0) -> Any:
    return family(env).agents(key, agents, 1.0, family(env).options())


def bowl(agents: int = 3, noise: float = 0.0) -> Small:
    """Heterogeneous quadratics."""
    return Small(quadratic(4, noise), lambda key, seed=0: bowls(key, agents, 0.5))


SMALL = {
    "bowl": functools.partial(bowl, noise=0.3),
    "random-mdp": functools.partial(rl, "random-mdp"),
    "direct": functools.partial(rl, "random-mdp", policy="direct", baseline="none"),
    "cartpole": functools.partial(rl, "cartpole", horizon=20, baseline="linear"),
}


def each(cases: Iterable[Any], rarely: tuple[str, ...] = ()) -> list[Any]:
    """Algorithms, or tuples that begin with one, for `parametrize`; `RARELY` and `rarely` only in `make test-slow`."""
    rows = [(case,) if isinstance(case, str) else case for case in cases]
    return [pytest.param(*row, marks=[pytest.mark.slow] if row[0] in RARELY + rarely else []) for row in rows]


def claims(name: str, world: str) -> bool:
    """Whether an algorithm is for that world."""
    return world in CLAIMS.get(name, (*SMALL, "slide"))


def home(name: str) -> str:
    """The world in which an algorithm is tested most."""
    return CLAIMS.get(name, ("random-mdp",))[0]


def make(name: str, problem: Problem, agents: int = 3, **settings: Any) -> Algorithm:
    """The algorithm called `name` with small steps, or other settings."""
    own = {"beta": 0.3} if name in MOMENTUM else {"epochs": 2} if name == "fedkl" else {}
    made = factory(name)
    taken = inspect.signature(made).parameters
    return made(problem, **{key: value for key, value in (STEPS | {"agents": agents} | own | settings).items() if key in taken})

"""The contract of an environment: two pure functions, with the agent's constants as an argument.

    reset(key, params)               -> state, observation
    step(key, state, action, params) -> Step(state, observation, reward, terminated, truncated)

An environment never resets itself; whoever rolls it out stops at the first `terminated | truncated`.
`params` is a pytree of numbers that belong to one agent; N agents are the same pytree with a leading axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fedpg import trees
from fedpg.errors import require


class Discrete(NamedTuple):
    """The integers 0 .. n-1."""

    n: int


class Box(NamedTuple):
    """Real arrays of one shape, each entry in [low, high]."""

    shape: tuple[int, ...]
    low: float = -math.inf
    high: float = math.inf


Space = Discrete | Box


def space_size(space: Space) -> int:
    """How many numbers one element of the space takes."""
    return 1 if isinstance(space, Discrete) else math.prod(space.shape)


class Step(NamedTuple):
    """What one step returns. `terminated`: the task ended. `truncated`: only the time did."""

    state: Any
    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array


class Environment(NamedTuple):
    """One task, for every agent.

    Attributes:
        name: what `--env` calls it.
        observation_space: what the policy sees.
        action_space: what the policy does.
        reset: (key, params) -> state, observation.
        transition: (noise, state, action, params) -> Step. The noise is one row of `draw(key, n)`.
        draw: (key, n) -> the randomness of n steps, with a leading axis of n. The default splits the key, so
            `transition` is then simply `step(key, state, action, params)`. Drawing all numbers of a trajectory
            before it starts is two to eight times faster than drawing them inside its loop.
    """

    name: str
    observation_space: Space
    action_space: Space
    reset: Callable[[jax.Array, Any], tuple[Any, jax.Array]]
    transition: Callable[[Any, Any, jax.Array, Any], Step]
    draw: Callable[[jax.Array, int], Any] = jax.random.split

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Step:
        """One step with its own key."""
        return self.transition(trees.take(self.draw(key, 1), 0), state, action, params)


class World(NamedTuple):
    """A family's environment and its agents, ready for an engine.

    Attributes:
        environment: `Environment`, or `HostEnvironment` if it runs in Python.
        agents_of: key -> params of the N agents of one seed, leading axis N; traced.
        prepare: all agents' params as NumPy arrays with axes (seeds, N, ...) -> what `environment` takes, with the same axes;
            runs once on the host (compiles models, makes environments).
    """

    environment: Any
    agents_of: Callable[[jax.Array], Any]
    prepare: Callable[[Any], Any] | None = None


class Federation(NamedTuple):
    """One environment and the constants of its N agents (leading axis N)."""

    environment: Any
    agents: Any
    prepare: Any = None


def federate(members: list[tuple[Environment, Any]]) -> Federation:
    """Puts agents that were made one by one, as (environment, params), into one federation.

    Raises:
        UserError: if their spaces or the structure of their params differ: one policy cannot serve them all.
    """
    require(len(members) > 0, "a federation needs at least one agent")
    first, first_params = members[0]
    for i, (environment, params) in enumerate(members):
        for what in ("observation_space", "action_space"):
            mine, theirs = getattr(first, what), getattr(environment, what)
            require(mine == theirs, f"agent {i} has {what} {theirs}, agent 0 has {mine}: all agents must share both spaces")
        require(
            environment.transition is first.transition and jax.tree.structure(params) == jax.tree.structure(first_params),
            f"agent {i} runs other code than agent 0: give every agent the same environment with its own params",
        )
    return Federation(first, trees.stack([params for _, params in members]))

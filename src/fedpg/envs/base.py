"""The contract of an environment: two pure functions, with the agent's constants as an argument.

    reset(key, params)               -> state, observation
    step(key, state, action, params) -> Step(state, observation, reward, terminated, truncated)

An environment never resets itself; a rollout stops at the first `terminated | truncated`.
`params` is a pytree of one agent's constants; N agents are the same pytree with a leading axis N.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

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
    """Number of entries of one element of the space."""
    return 1 if isinstance(space, Discrete) else math.prod(space.shape)


def zero(space: Space) -> jax.Array:
    """The element of the space that is all zeros."""
    return jnp.zeros((), int) if isinstance(space, Discrete) else jnp.zeros(space.shape)


class Step(NamedTuple):
    """The result of one step; `terminated`: the task ended, `truncated`: only the time limit was reached."""

    state: Any
    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array


class Environment(NamedTuple):
    """One task as pure functions, the same for all agents.

    Attributes:
        name: as in `--env`.
        observation_space: of the policy's inputs.
        action_space: of the policy's outputs.
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


Advance = Callable[[tuple, Any, Any], tuple[tuple, Any, Any]]
"""(entries of the state, action, params) -> entries of the next state, reward, terminated; in arithmetic only."""


class Elementwise(NamedTuple):
    """The transition of a task without noise and time limit whose observation is its state, a vector.

    `advance` is the same step for many lanes at once: each of its arguments may be an array of lanes.
    """

    advance: Advance

    def __call__(self, noise: Any, state: jax.Array, action: jax.Array, params: Any) -> Step:
        """One step of one lane."""
        del noise
        entries, reward, terminated = self.advance(tuple(state), action, params)
        after = jnp.stack(entries)
        return Step(after, after, reward, terminated, jnp.zeros((), bool))


class Federation(NamedTuple):
    """One environment and its N agents.

    Attributes:
        environment: `Environment`, or `HostEnvironment` if it runs in Python.
        agents: constants of the agents, leading axis N; or a function (key, seed) -> such constants, traced, which gets the
            key of the seed and its number.
        prepare: constants of all agents as NumPy arrays with axes (seeds, N, ...) -> what `environment` takes, with the same
            axes. It runs once on the host (compiles models, makes environments). None: the constants as they are.
    """

    environment: Any
    agents: Any
    prepare: Callable[[Any], Any] | None = None


def federate(members: list[tuple[Environment, Any]]) -> Federation:
    """The federation of agents that were made one by one, as (environment, params).

    Raises:
        UserError: if their spaces, their code or the structure of their params differ.
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

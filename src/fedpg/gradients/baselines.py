"""Baselines b(s_t, t), fitted on *earlier* batches of the same agent: the gradient stays unbiased.

Every baseline is a running weighted average or least-squares fit of the return-to-go sum_{h>=t} gamma^(h-t) r_h,
in which older batches count less (`DECAY`). Its state stays with the agent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.envs.base import Discrete, Environment, space_size
from fedpg.errors import choose, require
from fedpg.gradients.rollout import Trajectory
from fedpg.policies.base import features

NAMES = ("none", "time", "linear", "value")
DECAY = 0.8
"""Factor on older batches when a new one is added."""
RIDGE = 1e-3
"""Ridge penalty of the least-squares fit."""
MOST_BYTES, COPIES = 2**30, 4
"""The memory that the least-squares fit of one agent may take, and how many matrices it holds at a time."""


class Baseline(NamedTuple):
    """One kind of baseline."""

    init: Callable[[], Any]  # () -> state
    predict: Callable[[Any, Trajectory], jax.Array]  # (state, trajectory) -> b_t for every step, (H,)
    update: Callable[[Any, Trajectory, jax.Array], Any]  # (state, trajectories with leading axis B, targets (B, H)) -> state


def _none() -> Baseline:
    return Baseline(lambda: (), lambda state, tau: jnp.zeros_like(tau.reward), lambda state, tau, target: state)


class Average(NamedTuple):
    """A decayed mean in each of n cells, which are times or states."""

    total: jax.Array  # sum of targets, (n,)
    visits: jax.Array  # number of targets, (n,)

    def mean(self) -> jax.Array:
        """The mean target in every cell, 0 where there was none, (n,)."""
        return self.total / jnp.maximum(self.visits, 1e-6)

    def add(self, total: jax.Array, visits: jax.Array) -> "Average":
        """Adds the sums of a new batch; older batches count less."""
        return Average(DECAY * self.total + total, DECAY * self.visits + visits)


def _time(horizon: int) -> Baseline:
    """Mean return-to-go at each time."""

    def update(state: Average, tau: Trajectory, target: jax.Array) -> Average:
        return state.add(jnp.sum(tau.mask * target, axis=0), jnp.sum(tau.mask, axis=0))

    return Baseline(lambda: Average(jnp.zeros(horizon), jnp.zeros(horizon)), lambda state, tau: state.mean(), update)


def _value(states: int) -> Baseline:
    """Mean return-to-go in each state."""

    def update(state: Average, tau: Trajectory, target: jax.Array) -> Average:
        visited = jax.nn.one_hot(tau.observation, states) * tau.mask[..., None]  # (B, H, S)
        return state.add(jnp.einsum("bhs,bh->s", visited, target), jnp.sum(visited, axis=(0, 1)))

    return Baseline(lambda: Average(jnp.zeros(states), jnp.zeros(states)), lambda state, tau: state.mean()[tau.observation], update)


class Fit(NamedTuple):
    """The decayed normal equations of a least-squares fit and their solution."""

    gram: jax.Array  # (D, D)
    moment: jax.Array  # (D,)
    coefficient: jax.Array  # the solution, (D,)


def _linear(environment: Environment) -> Baseline:
    """Least squares on [s, s^2, t, t^2, t^3, 1] with t in hundreds of steps (one-hot s for discrete observations)."""
    space = environment.observation_space
    width = (space.n if isinstance(space, Discrete) else 2 * space_size(space)) + 4
    needed = COPIES * width**2 * jnp.zeros(()).dtype.itemsize
    proposal = "give --baseline time, which needs none of it, or a smaller observation"
    require(needed <= MOST_BYTES, f"the linear baseline of {width} features needs {needed / 1e9:.1f} GB for every agent: {proposal}")

    def phi(tau: Trajectory) -> jax.Array:
        s = jax.vmap(lambda o: features(space, o))(tau.observation)
        t = jnp.arange(tau.reward.shape[0])[:, None] / 100.0
        own = [s] if isinstance(space, Discrete) else [s, s**2]
        return jnp.concatenate([*own, t, t**2, t**3, jnp.ones_like(t)], axis=1)

    def init() -> Fit:
        return Fit(jnp.zeros((width, width)), jnp.zeros(width), jnp.zeros(width))

    def update(state: Fit, tau: Trajectory, target: jax.Array) -> Fit:
        rows = jax.vmap(phi)(tau) * tau.mask[..., None]
        weight = 1.0 / jnp.maximum(jnp.sum(tau.mask), 1.0)
        gram = DECAY * state.gram + weight * jnp.einsum("bhi,bhj->ij", rows, rows)
        moment = DECAY * state.moment + weight * jnp.einsum("bhi,bh->i", rows, target)
        coefficient = jax.scipy.linalg.solve(gram + RIDGE * jnp.eye(gram.shape[0]), moment, assume_a="pos")
        return Fit(gram, moment, coefficient)

    return Baseline(init, lambda state, tau: phi(tau) @ state.coefficient, update)


def make(name: str, environment: Environment, horizon: int) -> Baseline:
    """The baseline called `name`: none, time (mean at each t), linear (features), value (mean in each state)."""
    choose("baseline", name, NAMES)
    if name == "none":
        return _none()
    if name == "time":
        return _time(horizon)
    if name == "linear":
        return _linear(environment)
    space = environment.observation_space
    require(isinstance(space, Discrete), f"baseline 'value' needs a finite number of states, and {environment.name} has none: use 'linear'")
    return _value(space.n)

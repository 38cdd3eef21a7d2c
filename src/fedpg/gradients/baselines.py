"""Baselines b(s_t, t), fitted on what an agent saw *before*: they then leave the gradient unbiased.

Every baseline is a running weighted average or least-squares fit of the return-to-go sum_{h>=t} gamma^(h-t) r_h,
in which older batches count less (`DECAY`). Its state stays with its agent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpg.envs.base import Discrete, Environment
from fedpg.errors import choose, require
from fedpg.gradients.rollout import Trajectory
from fedpg.policies.base import features

NAMES = ("none", "time", "linear", "value")
DECAY = 0.8
"""How much of the older evidence is kept when a new batch comes."""
RIDGE = 1e-3
"""Pulls the least-squares fit to zero where there is little evidence."""


class Baseline(NamedTuple):
    """One kind of baseline.

    Attributes:
        init: () -> state.
        predict: (state, trajectory) -> b_t for every step, (H,).
        update: (state, trajectories with leading axis B, targets (B, H)) -> state.
    """

    init: Callable[[], Any]
    predict: Callable[[Any, Trajectory], jax.Array]
    update: Callable[[Any, Trajectory, jax.Array], Any]


def targets(reward: jax.Array, discount: float) -> jax.Array:
    """What a baseline predicts: sum_{h>=t} gamma^(h-t) r_h, (H,).

    As a product with a triangular matrix: G_t / gamma^t would underflow for long horizons, and a loop is slow on a GPU.
    """
    steps = jnp.arange(reward.shape[0])
    later = steps[None, :] - steps[:, None]
    return jnp.where(later >= 0, jnp.power(discount, jnp.maximum(later, 0)), 0.0) @ reward


def _none() -> Baseline:
    return Baseline(lambda: (), lambda state, tau: jnp.zeros_like(tau.reward), lambda state, tau, target: state)


class Average(NamedTuple):
    """A decayed mean per cell: sum of targets and of visits, each (cells,)."""

    total: jax.Array
    visits: jax.Array

    def mean(self) -> jax.Array:
        """The mean target in every cell, 0 where nothing was seen, (cells,)."""
        return self.total / jnp.maximum(self.visits, 1e-6)

    def add(self, total: jax.Array, visits: jax.Array) -> Average:
        """With the sums of a new batch; what was known before counts less."""
        return Average(DECAY * self.total + total, DECAY * self.visits + visits)


def _averages(cells: int, cell_of: Callable[[Trajectory], jax.Array]) -> Baseline:
    """Mean return-to-go in each of `cells` cells; `cell_of` gives each step's cell, (H,)."""

    def update(state: Average, tau: Trajectory, target: jax.Array) -> Average:
        cell = jax.nn.one_hot(jax.vmap(cell_of)(tau), cells) * tau.mask[..., None]  # (B, H, cells)
        return state.add(jnp.einsum("bhc,bh->c", cell, target), jnp.sum(cell, axis=(0, 1)))

    return Baseline(
        lambda: Average(jnp.zeros(cells), jnp.zeros(cells)),
        lambda state, tau: state.mean()[cell_of(tau)],
        update,
    )


def _time(horizon: int) -> Baseline:
    """Mean return-to-go at each time: step t is in cell t."""

    def update(state: Average, tau: Trajectory, target: jax.Array) -> Average:
        return state.add(jnp.sum(tau.mask * target, axis=0), jnp.sum(tau.mask, axis=0))

    return _averages(horizon, lambda tau: jnp.arange(horizon))._replace(update=update)


class Fit(NamedTuple):
    """Decayed normal equations and their solution."""

    gram: jax.Array
    moment: jax.Array
    coefficient: jax.Array


def _linear(environment: Environment) -> Baseline:
    """Least squares on [s, s^2, t, t^2, t^3, 1] with t in hundreds of steps (one-hot s for discrete observations)."""
    space = environment.observation_space

    def phi(tau: Trajectory) -> jax.Array:
        s = jax.vmap(lambda o: features(space, o))(tau.observation)
        t = jnp.arange(tau.reward.shape[0])[:, None] / 100.0
        own = [s] if isinstance(space, Discrete) else [s, s**2]
        return jnp.concatenate([*own, t, t**2, t**3, jnp.ones_like(t)], axis=1)

    def init() -> Fit:
        observation = jnp.zeros((1, *getattr(space, "shape", ())), int if isinstance(space, Discrete) else float)
        width = phi(Trajectory(observation, jnp.zeros(1), jnp.zeros(1), jnp.ones(1))).shape[1]
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
    return _averages(space.n, lambda tau: tau.observation)

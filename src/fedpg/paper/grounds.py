"""Two federations on which every constant of the theorem is known: where rates are measured.

bowls   quadratics with noisy gradients and noisy curvature; importance weights are 1. Agents come in pairs that differ, in
        curvature and in optimum, but average to the same J whatever N is.
mdp     one small random MDP, the same for every agent, softmax policy, the paper's estimator (no baseline, full weights)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedpg.paper.sweep import federation
from fedpg.problem import Problem
from fedpg.quadratic import Bowl, quadratic
from fedpg.simulate import COMPILER_OPTIONS

DIMENSION, NOISE, CURVATURE_NOISE, GAP, APART = 16, 1.0, 3.0, 4.0, 0.2
"""Of the bowls: d, sigma per coordinate, s, J* - J(theta_0), and |c_i - c|^2 of the first of a pair."""
MDP_SIZE, HORIZON, DISCOUNT = {"states": 3, "actions": 2}, 5, 0.9
PATH, PROBES = 1000, 4000
"""Steps of the exact ascent that finds J*, and trajectories behind sigma and the spread."""


class Known(NamedTuple):
    """The constants of the theorem, on this problem instead of in the worst case.

    Attributes:
        smoothness: L, of J.
        spread: S, Lipschitz constant in mean square of w g (at least L): what the theorem bounds by Lbar.
        sigma: standard deviation of g at theta_0.
        gap: Delta = J* - J(theta_0).
        start: G_0, the mean over agents of |grad J_i(theta_0)|^2.
    """

    smoothness: float
    spread: float
    sigma: float
    gap: float
    start: float


class Ground(NamedTuple):
    """Attributes:
    name: for people.
    problem: what is learned.
    agents: N -> the agents, leading axis N; J is the same for every N.
    known: its constants.
    """

    name: str
    problem: Problem
    agents: Callable[[int], Any]
    known: Known


def bowls() -> Ground:
    """Quadratics in pairs. One agent alone is the mean bowl; otherwise N must be even."""
    mean = np.linspace(0.5, 1.0, DIMENSION)
    centre = np.full(DIMENSION, np.sqrt(2.0 * GAP / mean.sum()))
    sign = np.where(np.arange(DIMENSION) % 2 == 0, 1.0, -1.0)
    pair = np.stack([mean * (1.0 + 0.5 * sign), mean * (1.0 - 0.5 * sign)])
    away = sign * np.sqrt(APART / DIMENSION)
    # The second agent pulls as hard against the first as the first pulls away, so that their mean is at rest in `centre`.
    centres = np.stack([centre + away, centre - away * pair[0] / pair[1]])

    def agents(count: int) -> Bowl:
        curvature, middle = (mean[None], centre[None]) if count == 1 else (np.tile(x, (count // 2, 1)) for x in (pair, centres))
        return Bowl(np.stack([np.diag(sides) for sides in curvature]), middle)

    known = Known(
        smoothness=float(mean.max()),
        spread=float(np.hypot(pair.max(), CURVATURE_NOISE)),
        sigma=float(np.sqrt(DIMENSION * NOISE**2 + CURVATURE_NOISE**2 * np.mean(np.sum(centres**2, axis=1)))),
        gap=GAP,
        start=float(np.mean(np.sum((pair * centres) ** 2, axis=1))),
    )
    return Ground("quadratics", quadratic(DIMENSION, NOISE, CURVATURE_NOISE), agents, known)


def mdp(number: int = 0) -> Ground:
    """One random MDP for all; `number` says which."""
    problem, agents_of = federation("random-mdp", 1, 0.0, MDP_SIZE, horizon=HORIZON, discount=DISCOUNT)
    one = jax.jit(agents_of)(jax.random.key(number))
    known = measured(problem, jax.tree.map(lambda x: x[0], one))
    return Ground("random MDP", problem, lambda count: jax.tree.map(lambda x: np.repeat(x, count, axis=0), one), known)


def measured(problem: Problem, agent: Any) -> Known:
    """The constants of one agent's problem: L along exact ascent from theta_0, S and sigma by sampling at theta_0."""
    key = jax.random.key(0)
    flat, unravel = ravel_pytree(problem.init_params(key))

    def objective(at: jax.Array) -> jax.Array:
        return problem.evaluate(key, unravel(at), agent).objective

    def probe(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        sample, _ = problem.sample(key, unravel(flat), agent, problem.init_memory())
        weighted = jax.jacfwd(lambda at: ravel_pytree(problem.weighted_gradient(sample, unravel(at), unravel(flat))[0])[0])(flat)
        return ravel_pytree(problem.gradient(sample, unravel(flat)))[0], weighted.T @ weighted

    def everything() -> tuple:
        last, path = jax.lax.scan(lambda at, _: (at + jax.grad(objective)(at), at), flat, None, length=PATH)
        hessians = jax.vmap(jax.jacfwd(jax.grad(objective)))(path[jnp.array([0, 1, 2, 4, 8, 16, 32])])
        samples, squares = jax.vmap(probe)(jax.random.split(key, PROBES))
        return objective(last) - objective(flat), jax.grad(objective)(flat), hessians, samples, squares.mean(0)

    found = jax.jit(everything, compiler_options=COMPILER_OPTIONS.get(jax.default_backend()))()
    gap, gradient, hessians, samples, squares = (np.asarray(x, float) for x in found)
    smoothness = float(np.abs(np.linalg.eigvalsh(hessians)).max())
    return Known(
        smoothness=smoothness,
        spread=max(smoothness, float(np.sqrt(np.linalg.eigvalsh(squares).max()))),
        sigma=float(np.sqrt(np.mean(np.sum((samples - gradient) ** 2, axis=1)))),
        gap=float(gap),
        start=float(gradient @ gradient),
    )


GROUNDS: dict[str, Callable[[], Ground]] = {"bowls": bowls, "mdp": mdp}

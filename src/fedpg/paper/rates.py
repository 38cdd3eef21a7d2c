"""What the theorem on FedSVRPG-M bounds, measured: the mean over R rounds of |grad J(theta_r)|^2, called eps here.

With the steps that the theorem prescribes, on two problems whose constants are known:

quadratics    noisy gradients and noisy curvature; importance weights are 1. Agents come in pairs that differ, in curvature and in
              optimum, but average to the same J whatever N is.
random MDP    one small MDP, the same for every agent, softmax policy, the paper's estimator (no baseline, full weights)
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, Exchange
from fedpg.paper.jobs import cached
from fedpg.paper.method import PAVG, Method
from fedpg.paper.task import Task
from fedpg.problem import Problem
from fedpg.quadratic import Bowl, quadratic
from fedpg.runs.sweep import curves
from fedpg.simulate import simulator

DIMENSION, NOISE, CURVATURE_NOISE, GAP, APART = 16, 1.0, 3.0, 4.0, 0.2
"""Of the quadratics: d, sigma per coordinate, s, J* - J(theta_0), and |c_i - c|^2 of the first of a pair."""
MDP = Task("random MDP", "random-mdp", 1, 0.0, {"states": 3, "actions": 2}, horizon=5, baseline="none")
BOLD, BOLDEST = 12.0, "FedSVRPG-M, bold"
"""How much longer the bold steps are: the proof's 1/24 and 1/sqrt(162) become 1/2 and 0.94, near the best on another quadratic."""
PER_OCTAVE = 8
"""Evaluated rounds each time the number of rounds doubles."""


class Constants(NamedTuple):
    """The constants of the theorem, on this problem instead of in the worst case.

    Attributes:
        smoothness: L, of J.
        spread: S, Lipschitz constant in mean square of w g (at least L), which the theorem bounds by Lbar.
        sigma: standard deviation of g at theta_0.
        gap: Delta = J* - J(theta_0).
        start: G_0, the mean over agents of |grad J_i(theta_0)|^2.
    """

    smoothness: float
    spread: float
    sigma: float
    gap: float
    start: float


class RateProblem(NamedTuple):
    """A problem, its agents as a function of N (J is the same for every N), and its constants."""

    name: str
    problem: Problem
    agents: Callable[[int], Any]
    constants: Constants


def quadratics() -> RateProblem:
    """Quadratics in pairs. One agent alone is the mean quadratic; otherwise N must be even."""
    mean = np.linspace(0.5, 1.0, DIMENSION)
    centre = np.full(DIMENSION, np.sqrt(2.0 * GAP / mean.sum()))
    sign = np.where(np.arange(DIMENSION) % 2 == 0, 1.0, -1.0)
    pair = np.stack([mean * (1.0 + 0.5 * sign), mean * (1.0 - 0.5 * sign)])
    away = sign * np.sqrt(APART / DIMENSION)
    # The gradients of both agents cancel in `centre`.
    centres = np.stack([centre + away, centre - away * pair[0] / pair[1]])

    def agents(count: int) -> Bowl:
        curvature, middle = (mean[None], centre[None]) if count == 1 else (np.tile(x, (count // 2, 1)) for x in (pair, centres))
        return Bowl(np.stack([np.diag(sides) for sides in curvature]), middle)

    sigma = float(np.sqrt(DIMENSION * NOISE**2 + CURVATURE_NOISE**2 * np.mean(np.sum(centres**2, axis=1))))
    spread, start = float(np.hypot(pair.max(), CURVATURE_NOISE)), float(np.mean(np.sum((pair * centres) ** 2, axis=1)))
    constants = Constants(float(mean.max()), spread, sigma, GAP, start)
    return RateProblem("quadratics", quadratic(DIMENSION, NOISE, CURVATURE_NOISE), agents, constants)


def random_mdp() -> RateProblem:
    """One random MDP for all agents. Its constants were measured once, as a test does again."""
    one = jax.jit(MDP.federation().agents)(jax.random.key(0), 0)
    constants = Constants(smoothness=0.304877, spread=2.18662, sigma=2.03064, gap=1.40515, start=0.399536)
    return RateProblem(MDP.name, MDP.problem(PAVG), lambda count: jax.tree.map(lambda x: np.repeat(x, count, axis=0), one), constants)


PROBLEMS: dict[str, Callable[[], RateProblem]] = {"quadratics": quadratics, MDP.name: random_mdp}


class Steps(NamedTuple):
    """P settings, each meant for its own number of rounds; every array is (P,).

    Attributes:
        rounds: R.
        beta, global_lr, local_lr: beta, lambda, eta.
        batches: B, behind u_0; 0 without.
        capped: whether the smoothness of J and not the noise limits lambda: outside the regime of the linear speed-up.
    """

    rounds: np.ndarray
    beta: np.ndarray
    global_lr: np.ndarray
    local_lr: np.ndarray
    batches: np.ndarray
    capped: np.ndarray


def eta(
    c: Constants, agents: int, local_steps: int, rounds: np.ndarray, beta: np.ndarray, global_lr: np.ndarray, stated: bool
) -> np.ndarray:
    """The largest eta, numeric constants taken as 1, that obeys the theorem's three conditions and, unless `stated`, a fourth.

    The fourth, eta K S <= beta / (1 - beta + lambda beta L R), is used by the proof but missing from the statement (erratum
    `first-steps-condition`). It binds whenever beta is small.
    """
    limits = [np.sqrt(c.gap / (c.start * global_lr * rounds)), np.sqrt(beta / agents), (beta / (agents * local_steps)) ** 0.25]
    if not stated:
        limits.append(beta / (1.0 - beta + global_lr * beta * c.smoothness * rounds))
    return np.min(limits, axis=0) / (local_steps * c.spread)


def theorem(c: Constants, agents: int, local_steps: int, rounds: np.ndarray, boldness: float = 1.0, stated: bool = False) -> Steps:
    """The theorem's beta, lambda, eta and B for R = `rounds`, with known constants instead of worst-case ones.

    lambda is `boldness` times min(1/(24 L), sqrt(beta N K / 162)/S). The theorem writes Lbar for L too; its proof needs no more.
    """
    samples = agents * local_steps
    beta = np.minimum(1.0, (samples * (c.spread * c.gap / rounds) ** 2 / c.sigma**4) ** (1 / 3))
    noisy, cap = boldness * np.sqrt(beta * samples / 162.0) / c.spread, boldness / (24.0 * c.smoothness)
    global_lr = np.minimum(cap, noisy)
    local_lr = eta(c, agents, local_steps, rounds, beta, global_lr, stated)
    return Steps(rounds, beta, global_lr, local_lr, np.ceil(local_steps / (rounds * beta**2)), noisy > cap)


def plain(c: Constants, agents: int, local_steps: int, rounds: np.ndarray) -> Steps:
    """PAvg (beta = 1): the lambda that minimises Delta/(lambda R) + L lambda sigma^2/(2 N K), at most 1/(2 L); eta as for momentum."""
    balanced = np.sqrt(2.0 * c.gap * agents * local_steps / (c.smoothness * rounds)) / c.sigma
    cap, one = 0.5 / c.smoothness, np.ones(len(rounds))
    local_lr = theorem(c, agents, local_steps, rounds).local_lr
    return Steps(rounds, one, np.minimum(balanced, cap), local_lr, 0.0 * one, balanced > cap)


def prescriptions(c: Constants, agents: int, local_steps: int, rounds: np.ndarray) -> dict[str, Steps]:
    """The steps of every variant, by name; all fit in one program, since PAvg is FedSVRPG-M with beta = 1."""
    size = (c, agents, local_steps, rounds)
    bold, stated = theorem(*size, boldness=BOLD), theorem(*size, stated=True)
    return {"FedSVRPG-M": theorem(*size), BOLDEST: bold, "FedSVRPG-M, eta as stated": stated, "PAvg": plain(*size)}


class Measured(NamedTuple):
    """For P settings, S seeds and T evaluated rounds.

    Attributes:
        rounds: which were evaluated, (T,).
        running: the mean over all rounds before of |grad J|^2, (P, S, T); at round 0, |grad J(theta_0)|^2.
        averages: `running` at each setting's own R, (P, S).
        per_agent: trajectories of one agent in R rounds, those behind u_0 included, (P,).
        ess: the least effective share of importance weights between two evaluations, mean over seeds, (P,).
    """

    rounds: np.ndarray
    running: np.ndarray
    averages: np.ndarray
    per_agent: np.ndarray
    ess: np.ndarray


def initial_direction(problem: Problem, batches: jax.Array) -> tuple[Exchange, ...]:
    """The warm-up that finds u_0 from a traced number of batches per agent, so that settings of one program may differ in it."""
    (one,) = base.initial_direction(problem, 1)

    def local_update(key: jax.Array, shared: Any, agent_state: Any, agent: Any) -> tuple:
        def add(number: jax.Array, carry: tuple) -> tuple:
            u, agent_state, info = carry
            g, agent_state, more = one.local_update(jax.random.fold_in(key, number), shared, agent_state, agent)
            return trees.add_scaled(u, 1.0 / batches, g), agent_state, base.total(trees.stack([info, more]))

        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(one.local_update, key, shared, agent_state, agent))
        return jax.lax.fori_loop(0, batches.astype(int), add, (nothing[0], agent_state, nothing[2]))

    return (one._replace(local_update=local_update),)


def evaluated(rounds: np.ndarray) -> np.ndarray:
    """The rounds to evaluate: 0, all of `rounds`, and `PER_OCTAVE` in each octave down from the last."""
    last = int(rounds.max())
    spread = last * 2.0 ** -np.arange(0.0, np.log2(last) + 1.0, 1.0 / PER_OCTAVE)
    return np.unique(np.concatenate([[0], rounds, np.round(spread)]).astype(int))


def running_mean(rounds: np.ndarray, values: np.ndarray) -> np.ndarray:
    """1/R sum_{r<R} of values known at `rounds` only, (..., T): straight lines between them; values[..., 0] at R = 0."""
    # A sum over r = a .. b-1 along a line is the trapezium plus half the first minus half the last value. Runs that diverge overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        parts = 0.5 * (values[..., 1:] + values[..., :-1]) * np.diff(rounds) + 0.5 * (values[..., :-1] - values[..., 1:])
    return np.concatenate([values[..., :1], np.cumsum(parts, axis=-1) / rounds[1:]], axis=-1)


def measure(on: RateProblem, method: Method, parts: dict[str, Steps], agents: int, local_steps: int, seeds: int) -> dict[str, Measured]:
    """Runs a method with every part's steps in one program, for the most rounds any setting wants; cached.

    In double precision: u = Delta / (eta K), and with the small eta of the theory the rounding of theta would be noise in u.
    """
    steps = Steps(*(np.concatenate(columns) for columns in zip(*parts.values(), strict=True)))
    rounds, own = evaluated(steps.rounds), np.searchsorted(evaluated(steps.rounds), steps.rounds)

    def algorithm_of(setting: dict[str, Any]) -> Algorithm:
        made = method.make(on.problem, local_steps=local_steps, **setting)
        return made._replace(warmup=initial_direction(on.problem, setting["batches"])) if made.warmup else made

    def make() -> Measured:
        with jax.enable_x64(True):
            grid = {name: jnp.asarray(getattr(steps, name), float) for name in ("beta", "global_lr", "local_lr", "batches")}
            members = jax.tree.map(lambda x: jnp.asarray(x, float), on.agents(agents))
            found = curves(simulator(on.problem, algorithm_of, members, seeds=seeds, settings=grid), jax.random.key(0), rounds)
        gradients = np.full((len(steps.rounds), seeds, len(rounds)), np.nan)
        gradients[..., : len(found.rounds)] = found.grad_norm_sq
        running = running_mean(rounds, gradients)
        averages = np.stack([running[p, :, t] for p, t in enumerate(own)])
        ess = np.nan_to_num(found.ess, nan=1.0).mean(axis=1).min(axis=-1)
        return Measured(rounds, running, averages, local_steps * steps.rounds + steps.batches, ess)

    found = cached(("rates", on.name, on.constants, method, steps._asdict(), agents, local_steps, seeds), make)
    ends = np.cumsum([len(part.rounds) for part in parts.values()])
    slices = [slice(end - len(part.rounds), end) for part, end in zip(parts.values(), ends, strict=True)]
    return {name: Measured(found.rounds, *(values[part] for values in found[1:])) for name, part in zip(parts, slices, strict=True)}

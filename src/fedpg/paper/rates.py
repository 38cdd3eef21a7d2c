"""What the theorem on FedSVRPG-M bounds, measured: the mean over R rounds of |grad J(theta_r)|^2, with the steps it prescribes for R."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, Exchange
from fedpg.paper.grounds import Ground
from fedpg.paper.kept import part
from fedpg.paper.prescribed import Steps, joined
from fedpg.problem import Problem
from fedpg.simulate import Simulator

PER_OCTAVE = 8
"""Evaluated rounds each time the number of rounds doubles; all of the first ones."""


def opening(problem: Problem, batches: jax.Array) -> tuple[Exchange, ...]:
    """The exchange that finds u_0 from `batches` batches per agent, a traced number: settings differ in it within one program."""
    (one,) = base.initial_direction(problem, 1, lambda shared, u: shared._replace(direction=u))

    def local_update(key: jax.Array, shared: Any, agent_state: Any, agent: Any) -> tuple:
        def add(number: jax.Array, carry: tuple) -> tuple:
            u, agent_state, info = carry
            g, agent_state, more = one.local_update(jax.random.fold_in(key, number), shared, agent_state, agent)
            return trees.add_scaled(u, 1.0 / batches, g), agent_state, base.total(trees.stack([info, more]))

        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(one.local_update, key, shared, agent_state, agent))
        return jax.lax.fori_loop(0, batches.astype(int), add, (nothing[0], agent_state, nothing[2]))

    return (Exchange(local_update, one.aggregate),)


class Measured(NamedTuple):
    """For P settings, S seeds and T evaluated rounds.

    Attributes:
        rounds: which were evaluated, (T,).
        running: the mean over all rounds before of |grad J|^2, (P, S, T); at round 0, |grad J(theta_0)|^2.
        averages: `running` at each setting's own R, (P, S).
        per_agent: trajectories of one agent in R rounds, those behind u_0 included, (P,).
        effective: effective share of the importance weights, total^2 / (count * squares), (P, S).
        largest: largest weight, (P, S).
    """

    rounds: np.ndarray
    running: np.ndarray
    averages: np.ndarray
    per_agent: np.ndarray
    effective: np.ndarray
    largest: np.ndarray


def marks(rounds: np.ndarray) -> np.ndarray:
    """The rounds to evaluate: 0, all of `rounds`, and `PER_OCTAVE` in each octave down from the last."""
    last = int(rounds.max())
    spread = last * 2.0 ** -np.arange(0.0, np.log2(last) + 1.0, 1.0 / PER_OCTAVE)
    return np.unique(np.concatenate([[0], rounds, np.round(spread)]).astype(int))


def running_mean(rounds: np.ndarray, values: np.ndarray) -> np.ndarray:
    """1/R sum_{r<R} of values known at `rounds` only, (..., T): straight lines between them; values[..., 0] at R = 0."""
    steps = np.diff(rounds)
    # A sum over r = a .. b-1 along a line is the trapezium plus half the first minus half the last value. Runs that diverge overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        parts = 0.5 * (values[..., 1:] + values[..., :-1]) * steps + 0.5 * (values[..., :-1] - values[..., 1:])
    return np.concatenate([values[..., :1], np.cumsum(parts, axis=-1) / rounds[1:]], axis=-1)


def measure(
    ground: Ground,
    make: Callable[..., Algorithm],
    parts: dict[str, Steps],
    *,
    agents: int,
    local_steps: int,
    seeds: int,
    tell: Callable[[float], None] = lambda share: None,
) -> dict[str, Measured]:
    """Runs the algorithm `make` (a factory such as `fedsvrpg_m`) with every part's steps, side by side, for the most rounds any wants.

    In double precision: u = Delta / (eta K), and with the small eta of the theory the rounding of theta would be noise in u.
    """
    steps = joined(*parts.values())
    named = ("rates", ground.name, ground.known, make.__name__, steps._asdict(), agents, local_steps, seeds)
    with jax.enable_x64(True):
        found = part(named, lambda: _run(ground, make, steps, agents, local_steps, seeds, tell))
    ends = np.cumsum([len(steps.rounds) for steps in parts.values()])
    own = (slice(end - len(steps.rounds), end) for steps, end in zip(parts.values(), ends, strict=True))
    return {name: Measured(found.rounds, *(values[part] for values in found[1:])) for name, part in zip(parts, own, strict=True)}


def _run(
    ground: Ground,
    make: Callable[..., Algorithm],
    steps: Steps,
    agents: int,
    local_steps: int,
    seeds: int,
    tell: Callable[[float], None],
) -> Measured:
    def algorithm_of(setting: Any) -> Algorithm:
        hyper = {name: value for name, value in setting.items() if name != "batches"}
        made = make(ground.problem, **hyper, local_steps=local_steps)
        return made._replace(warmup=opening(ground.problem, setting["batches"])) if made.warmup else made

    grid = {name: jnp.asarray(getattr(steps, name), float) for name in ("beta", "global_lr", "local_lr", "batches")}
    members, rounds = jax.tree.map(lambda x: jnp.asarray(x, float), ground.agents(agents)), marks(steps.rounds)
    engine = Simulator(ground.problem, algorithm_of, lambda key: members, seeds=seeds, settings=grid)
    engine.start()
    engine.reset_info()
    found = []
    for done, target in zip([0, *rounds[:-1]], rounds, strict=True):
        if target > done:
            engine.advance(int(done), int(target - done))
        found.append(engine.evaluate(int(target)).grad_norm_sq)
        tell(float(target / rounds[-1]))
    state = engine.state()
    lost = np.where(state.failed >= 0, np.nan, 0.0)[:, None]
    running = running_mean(rounds, np.stack(found, axis=-1) + lost).reshape(len(steps.rounds), seeds, -1)
    own, weights = np.searchsorted(rounds, steps.rounds), state.info.weights
    return Measured(
        rounds=rounds,
        running=running,
        averages=np.stack([running[p, :, t] for p, t in enumerate(own)]),
        per_agent=local_steps * steps.rounds + steps.batches,
        effective=(weights.total**2 / np.maximum(weights.count * weights.squares, 1e-30)).reshape(-1, seeds),
        largest=weights.largest.reshape(-1, seeds),
    )


def weights_at_worst(runs: list[Measured]) -> dict[str, float]:
    """How the importance weights behaved: the effective share (mean over seeds) in the worst setting, and the largest weight."""
    shares = [run.effective.mean(axis=1).min() for run in runs]
    return {"effective share of weights": float(min(shares)), "largest weight": float(max(run.largest.max() for run in runs))}

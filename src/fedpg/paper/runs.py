"""Learning curves of deep tasks, for several settings of one configuration at once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.envs import worlds
from fedpg.errors import UserError
from fedpg.paper.kept import part
from fedpg.rounds import HEALTHY
from fedpg.runs.config import Config
from fedpg.runs.setup import plan, resolve
from fedpg.simulate import Simulator

FLOOR = {"cartpole": 0.0, "halfcheetah": -300.0, "walker2d": -50.0}
"""The least that a return counts, about twice as bad as an untrained policy; a seed that failed counts this from then on."""
SHOWN = (
    "agents", "heterogeneity", "local_steps", "batch", "local_lr", "horizon", "discount", "baseline", "weights",
    "normalise_advantages", "normalise_observations", "u0", "eval_every", "eval_episodes", "seeds",
)  # fmt: skip
"""What of a configuration the experiments report."""


class Run(NamedTuple):
    """One setting on S seeds, evaluated T times.

    Attributes:
        rounds: when, (T,).
        env_steps, trajectories: used by the whole federation until then, (S, T) each.
        total_return: mean over agents, undiscounted, at least `FLOOR`, (S, T).
        ess: effective sample size of the importance weights since the last evaluation, as a share, (S, T); NaN without weights.
        failed: the seeds that ended in numbers that are not finite, (S,).
    """

    rounds: np.ndarray
    env_steps: np.ndarray
    trajectories: np.ndarray
    total_return: np.ndarray
    ess: np.ndarray
    failed: np.ndarray


def task(env: str, algorithm: str, agents: int = 5, **given: Any) -> Config:
    """The preset of a task, resolved, with what is `given`. As in the paper, the agents differ in where they start only."""
    # CartPole's heterogeneity would spread these too; constants given as a list stay as they are.
    same = (f"length={[0.5] * agents}", f"gravity={[9.8] * agents}") if env == "cartpole" else ()
    backend = "batch" if env not in worlds.FAMILIES else "auto"
    return resolve(Config(env=env, algorithm=algorithm, agents=agents, env_option=same, backend=backend, **given))


def shown(config: Config) -> dict[str, Any]:
    """What of a configuration a reader needs."""
    return {name: getattr(config, name) for name in SHOWN}


def missing(env: str) -> str | None:
    """The line that says which extra `env` needs; None if it is there."""
    try:
        worlds.make_world(env, 1, 0.0, {}, "batch" if env not in worlds.FAMILIES else "auto")
    except UserError as error:
        return str(error)
    return None


def engine(config: Config, settings: dict[str, Sequence[float]]) -> Simulator:
    """What `fedpg.runs.setup.build` makes of a resolved configuration, with an axis of settings (beta, local_lr)."""
    asked = plan(dataclasses.replace(config, global_lr=None))
    grid = {name: jnp.asarray(values, float) for name, values in settings.items()}
    return Simulator(asked.problem, asked.algorithm_of, asked.agents_of, settings=grid, **asked.more)


def worth(env: str, total_return: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """What returns, (rows, N), count in the mean over agents, (rows,); agents and rows that failed count `FLOOR`."""
    counted = np.where(np.isfinite(total_return) & alive[:, None], total_return, -np.inf)
    return np.maximum(counted, FLOOR[env]).mean(1)


def curves(
    config: Config,
    settings: dict[str, Sequence[float]],
    steps: float = math.inf,
    tell: Callable[[float], None] = lambda share: None,
) -> list[Run]:
    """One run per setting: evaluated at the start and every `eval_every` rounds, until `rounds` are done or, in the mean over
    the seeds left, `steps` environment steps of the whole federation."""
    return part(("curves", config, settings, steps), lambda: _curves(config, settings, steps, tell))


def _curves(config: Config, settings: dict[str, Sequence[float]], steps: float, tell: Callable[[float], None]) -> list[Run]:
    # GPUs round matrix products to TF32 unless told otherwise.
    with jax.default_matmul_precision("highest"):
        made = engine(config, settings)
        made.start()
        used, found, done = np.zeros((2, made.rows)), [], 0
        while True:
            scores, state = made.evaluate(done), made.state()
            usage, weights = state.info.usage, state.info.weights
            used = used + np.stack([usage.env_steps, usage.trajectories])
            alive = state.failed == HEALTHY
            with np.errstate(all="ignore"):
                ess = weights.total**2 / (weights.squares * weights.count)
            found.append((*used, worth(config.env, scores.total_return, alive), ess, done))
            tell(max(done / config.rounds, used[0].max() / steps))
            if done >= config.rounds or not alive.any() or used[0][alive].mean() >= steps:
                break
            made.reset_info()
            count = min(config.eval_every, config.rounds - done)
            made.advance(done, count)
            done += count
    if done < config.rounds and not alive.any():  # nobody is left: the curve goes on at the floor
        found.append((*found[-1][:4], config.rounds))
    columns = [np.stack(column, -1).reshape(-1, config.seeds, len(found)) for column in list(zip(*found, strict=True))[:4]]
    rounds, failed = np.array([entry[4] for entry in found]), ~alive.reshape(-1, config.seeds)
    return [Run(rounds, *(column[p] for column in columns), failed[p]) for p in range(len(failed))]

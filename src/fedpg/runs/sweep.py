"""Learning curves of many settings: settings that differ in numbers only share one compiled program."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.rounds import HEALTHY
from fedpg.runs.config import Config
from fedpg.runs.metrics import effective_share
from fedpg.runs.setup import TRACED, build
from fedpg.simulate import Simulator


class Curves(NamedTuple):
    """What was measured, for P settings, S seeds, T evaluations and N agents. A seed that failed is NaN from then on.

    Attributes:
        rounds: evaluated after these, (T,).
        returns: undiscounted return of every agent, (P, S, T, N).
        objective: J_i of every agent, (P, S, T, N).
        grad_norm_sq: |grad J|^2, (P, S, T); None where it cannot be computed exactly.
        env_steps, trajectories: used by the whole federation since the start, (P, S, T) each.
        ess: effective sample size of the importance weights since the last evaluation, as a share, (P, S, T); NaN without weights.
        failed: the round in which a seed failed, -1 if it did not, (P, S).
    """

    rounds: np.ndarray
    returns: np.ndarray
    objective: np.ndarray
    grad_norm_sq: np.ndarray | None
    env_steps: np.ndarray
    trajectories: np.ndarray
    ess: np.ndarray
    failed: np.ndarray


def grid(**axes: Any) -> dict[str, np.ndarray]:
    """All combinations of the given values as settings, the last varying fastest.

    >>> {name: values.tolist() for name, values in grid(a=[1, 2], b=[5, 6]).items()}
    {'a': [1, 1, 2, 2], 'b': [5, 6, 5, 6]}
    """
    return {name: values.ravel() for name, values in zip(axes, np.meshgrid(*axes.values(), indexing="ij"), strict=True)}


def curves(
    sim: Simulator, key: jax.Array, rounds: Sequence[int], *, steps: float = math.inf, tell: Callable[[float], None] = lambda share: None
) -> Curves:
    """Runs a simulator, with or without settings, and evaluates it after each of `rounds`.

    Args:
        sim: every setting has the same agents and random numbers.
        key: the run's root key.
        rounds: ascending, from 0 on.
        steps: environment steps of the whole federation, in the mean over the seeds left, after which it stops; also when no seed is left.
        tell: gets the share that is done.
    """
    state, found, used = sim.init(key), [], np.zeros((2, sim.rows), int)
    for target in rounds:
        if (missing := target - int(state.round)) > 0:
            state, _ = sim.run(state, missing, accumulate=not found)  # the first call after the warm-up adds to its cost
        scores = jax.tree.map(np.asarray, sim.evaluate(state))
        usage, failed = state.rows.info.usage, np.asarray(state.rows.failed)
        used = used + np.stack([usage.env_steps, usage.trajectories])
        alive = failed == HEALTHY
        lost = np.where(alive, 0.0, np.nan)
        gradient = None if scores.grad_norm_sq is None else scores.grad_norm_sq + lost
        each = (scores.returns + lost[:, None], scores.objective + lost[:, None], gradient, *used, effective_share(state.rows.info.weights))
        found.append(each)
        tell(max(target / max(rounds[-1], 1), used[0].max() / steps))
        if not alive.any() or used[0][alive].mean() >= steps:
            break

    def stacked(*parts: np.ndarray) -> np.ndarray:
        return np.stack(parts, axis=1).reshape(-1, sim.seeds, len(found), *parts[0].shape[1:])

    return Curves(np.array(rounds[: len(found)]), *jax.tree.map(stacked, *found), failed.reshape(-1, sim.seeds))


def sweep(config: Config, settings: dict[str, Any] | None = None, **more: Any) -> Curves:
    """The curves of a resolved configuration, evaluated every `eval_every` rounds, in each of P settings.

    Args:
        config: with global_lr = None it is eta K in every setting.
        settings: arrays (P,) for some of `TRACED`; None for the configuration as it is.
        more: `steps` and `tell` of `curves`.
    """
    arrays = None if settings is None else {name: jnp.asarray(values, float) for name, values in settings.items()}
    rounds = [*range(0, config.rounds, config.eval_every), config.rounds]
    return curves(build(config, arrays), jax.random.key(config.seed), rounds, **more)


def sweep_all(configs: Sequence[Config]) -> Iterator[tuple[list[int], Curves]]:
    """The curves of resolved configurations: for each compiled program, which of them it ran, and their curves in that order.

    Configurations that differ in `TRACED` only share a program, unless the algorithm needs to know these numbers when it is built.
    """
    groups: dict[str, list[int]] = {}
    for number, config in enumerate(configs):
        groups.setdefault(repr(dataclasses.replace(config, **dict.fromkeys(TRACED))), []).append(number)
    for numbers in groups.values():
        first = configs[numbers[0]]
        settings = {name: [getattr(configs[i], name) for i in numbers] for name in TRACED if getattr(first, name) is not None}
        try:
            yield numbers, sweep(first, settings if len(numbers) > 1 else None)
        except jax.errors.ConcretizationTypeError:
            for number in numbers:
                yield [number], sweep(configs[number])

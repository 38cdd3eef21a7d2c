"""Rows: what the simulator runs side by side. One row is one seed in one setting of the hyper-parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpg import rounds
from fedpg.algorithms.base import Algorithm
from fedpg.algorithms.participation import EVERYONE, Participation
from fedpg.algorithms.selection import selector
from fedpg.errors import require
from fedpg.keys import Moment
from fedpg.problem import Problem
from fedpg.rounds import Scores, SeedState, participants
from fedpg.sequence import Local, play, warm_up


class Row(NamedTuple):
    """Attributes:
    seed: the seed's number, (); it alone decides keys and agents.
    setting: what the row's algorithm is made from, a pytree; None if all rows have the same algorithm.
    """

    seed: Any
    setting: Any = None


def all_rows(seeds: int, settings: Any = None) -> Row:
    """Every seed in every setting, setting-major (row = p * seeds + seed), as NumPy arrays with a leading axis.

    Args:
        seeds: how many seeds, numbered from 0.
        settings: a pytree of arrays with one leading axis P, or None.

    >>> rows = all_rows(2, {"beta": np.array([0.1, 0.5, 0.9])})
    >>> rows.seed.tolist(), rows.setting["beta"].tolist()
    ([0, 1, 0, 1, 0, 1], [0.1, 0.1, 0.5, 0.5, 0.9, 0.9])
    """
    if settings is None:
        return Row(np.arange(seeds))
    lengths = {np.shape(x)[:1] for x in jax.tree.leaves(settings)}
    require(len(lengths) == 1 and min(lengths) > (0,), "settings must be arrays with one leading axis, the same for all")
    ((count,),) = lengths
    return Row(np.tile(np.arange(seeds), count), jax.tree.map(lambda x: np.repeat(np.asarray(x), seeds, axis=0), settings))


class Stages(NamedTuple):
    """What a run is made of, traced, for one row and its agents (leading axis N).

    Attributes:
        start: (row, agents) -> the state after the warm-up.
        advance: (row, state, agents, first, count) -> the state after rounds first .. first+count-1.
        evaluate: (row, state, agents, round) -> Scores.
    """

    start: Callable[[Row, Any], SeedState]
    advance: Callable[[Row, SeedState, Any, jax.Array, jax.Array], SeedState]
    evaluate: Callable[[Row, SeedState, Any, jax.Array], Scores]


class AtOnce(Local):
    """Calls for all agents together."""

    def each(self, what: str, ids: jax.Array | None, function: Callable[..., Any], *args: Any) -> Any:
        return jax.vmap(function)(*args)

    def once(self, what: str, function: Callable[..., Any], *args: Any, **constants: Any) -> Any:
        return function(*args, **constants)


def stages(problem: Problem, algorithm_of: Callable[[Any], Algorithm], root: int, participation: Participation = EVERYONE) -> Stages:
    """The stages of a run on `problem`; algorithm_of(setting) is a row's algorithm."""

    def start(row: Row, agents: Any) -> SeedState:
        algorithm = algorithm_of(row.setting)
        count = jax.tree.leaves(participants(algorithm, agents))[0].shape[0]
        state = rounds.start(problem, algorithm, root, row.seed, count)
        for number in range(len(algorithm.warmup)):
            state = warm_up(algorithm, number, Moment(root, row.seed, number), state, agents, AtOnce())
        return state

    def advance(row: Row, state: SeedState, agents: Any, first: jax.Array, count: jax.Array) -> SeedState:
        algorithm = algorithm_of(row.setting)
        select = selector(participation, problem, algorithm, agents)

        def body(i: jax.Array, state: SeedState) -> SeedState:
            return play(algorithm, select, Moment(root, row.seed, first + i), state, agents, AtOnce())

        return jax.lax.fori_loop(0, count, body, state)

    def evaluate(row: Row, state: SeedState, agents: Any, round: jax.Array) -> Scores:
        return rounds.scores(problem, algorithm_of(row.setting), root, row.seed, round, state, agents)

    return Stages(start, advance, evaluate)

"""The debug engine: plain Python loops over seeds, rounds, agents and steps, nothing compiled.

Slow, but a print or a breakpoint in an algorithm, a policy or an environment works, and an error says where it happened.
Same interface as the simulator, and the same results up to rounding.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import communication as traffic
from fedpg import trees
from fedpg.algorithms.base import Algorithm
from fedpg.algorithms.participation import EVERYONE, Participation
from fedpg.algorithms.selection import selector
from fedpg.envs.host import Host
from fedpg.events import EventLog
from fedpg.keys import Moment
from fedpg.problem import Problem
from fedpg.rounds import Scores, SeedState, no_info, participants, scores, start
from fedpg.sequence import Local, play, warm_up
from fedpg.simulate import AgentsOf, make_agents


class StageError(RuntimeError):
    """An error with the name of the stage it came from; the original is its cause."""


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Runs what is inside without compiling it, and names the stage of any error raised there."""
    try:
        with jax.disable_jit():
            yield
    except Exception as error:
        raise StageError(f"{name}: {type(error).__name__}: {error}") from error


def called(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args), where an engine that compiles would only look at its shapes."""
    with stage("looking at what one agent sends"):
        return function(*args)


class OneByOne(Local):
    """Calls for one agent after another; `where` is the seed and the round."""

    def __init__(self, where: str) -> None:
        self.where = where

    def each(self, what: str, ids: jax.Array | None, function: Callable[..., Any], *args: Any) -> Any:
        results = []
        for i in range(jax.tree.leaves(args)[0].shape[0]):
            with stage(f"{self.where}, agent {i if ids is None else int(ids[i])}, {what}"):
                results.append(function(*trees.take(args, i)))
        return trees.stack(results)

    def once(self, what: str, function: Callable[..., Any], *args: Any, **constants: Any) -> Any:
        with stage(f"{self.where}, {what}"):
            return function(*args, **constants)


class Debug:
    """Runs one algorithm seed by seed, agent by agent. The arguments are those of `Simulator`, less `chunk` and `settings`."""

    save_every, withheld = 60.0, False

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        agents_of: AgentsOf,
        *,
        prepare: Callable[[Any], Any] | None = None,
        host: Host | None = None,
        root: int = 0,
        seeds: int = 1,
        participation: Participation = EVERYONE,
    ) -> None:
        self._problem, self._algorithm, self._root, self.seeds = problem, algorithm, root, seeds
        with stage("making the agents"):
            self.constants, agents = make_agents(agents_of, prepare, root, seeds, jax.devices()[0])
        self._agents = [jax.tree.map(jnp.asarray, trees.take(agents, seed)) for seed in range(seeds)]
        self.log = EventLog(host, jax.tree.leaves(agents)[0].shape[1])
        self._states: list[SeedState] = []
        self._participation = participation
        self._select = selector(participation, problem, algorithm, self._agents[0], called)

    @functools.cached_property
    def traffic(self) -> traffic.Traffic:
        return traffic.measure(self._problem, self._algorithm, self._agents[0], self._participation, called)

    def agents(self) -> Any:
        return jax.tree.map(np.asarray, trees.stack(self._agents))

    def template(self) -> SeedState:
        count = jax.tree.leaves(participants(self._algorithm, self._agents[0]))[0].shape[0]
        one = start(self._problem, self._algorithm, self._root, 0, count)
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.seeds, *x.shape), x.dtype), one)

    def start(self) -> None:
        self._states = []
        for seed in range(self.seeds):
            with stage(f"seed {seed}, init"):
                count = jax.tree.leaves(participants(self._algorithm, self._agents[seed]))[0].shape[0]
                self._states.append(start(self._problem, self._algorithm, self._root, seed, count))
            for number in range(len(self._algorithm.warmup)):
                moment, call = Moment(self._root, seed, number), OneByOne(f"seed {seed}, warm-up")
                self._states[seed] = warm_up(self._algorithm, number, moment, self._states[seed], self._agents[seed], call)
            self.log.collect(0, "warm-up")

    def advance(self, first: int, count: int) -> None:
        for seed in range(self.seeds):
            for round in range(first, first + count):
                moment, call = Moment(self._root, seed, round), OneByOne(f"seed {seed}, round {round}")
                self._states[seed] = play(self._algorithm, self._select, moment, self._states[seed], self._agents[seed], call)
                self.log.collect(round, "training")

    def evaluate(self, round: int) -> Scores:
        found = []
        for seed in range(self.seeds):
            with stage(f"seed {seed}, round {round}, evaluate"):
                state, agents = self._states[seed], self._agents[seed]
                found.append(scores(self._problem, self._algorithm, self._root, seed, round, state, agents))
        self.log.collect(round, "evaluation")
        return jax.tree.map(np.asarray, trees.stack(found))

    def state(self) -> SeedState:
        return jax.tree.map(np.asarray, trees.stack(self._states))

    def load(self, state: SeedState) -> None:
        self._states = [jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), state) for i in range(self.seeds)]

    def reset_info(self) -> None:
        self._states = [state._replace(info=no_info(), refused=jnp.zeros_like(state.refused)) for state in self._states]

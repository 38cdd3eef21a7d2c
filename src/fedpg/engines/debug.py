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

from fedpg import trees
from fedpg.algorithms.base import Algorithm, Exchange
from fedpg.engines import traffic
from fedpg.engines.events import EventLog
from fedpg.engines.keys import Purpose, agent_key
from fedpg.engines.round import Scores, SeedState, no_info, participants, scores, settle, start
from fedpg.engines.simulator import AgentsOf, make_agents
from fedpg.envs.host import Host
from fedpg.problem import Problem


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


class Debug:
    """Runs one algorithm seed by seed, agent by agent. The arguments are those of `Simulator`, less `chunk` and `settings`."""

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
    ) -> None:
        self._problem, self._algorithm, self._root, self.seeds = problem, algorithm, root, seeds
        with stage("making the agents"):
            self.constants, agents = make_agents(agents_of, prepare, root, seeds, jax.devices()[0])
        self._agents = [jax.tree.map(jnp.asarray, trees.take(agents, seed)) for seed in range(seeds)]
        self.log = EventLog(host, jax.tree.leaves(agents)[0].shape[1])
        self._states: list[SeedState] = []

    def _round(self, exchange: Exchange, purpose: Purpose, seed: int, round: int) -> None:
        where = f"seed {seed}, {'warm-up' if purpose is Purpose.WARMUP else f'round {round}'}"
        state, members = self._states[seed], participants(self._algorithm, self._agents[seed])
        results = []
        for i in range(jax.tree.leaves(members)[0].shape[0]):
            with stage(f"{where}, agent {i}, local_update"):
                key = agent_key(self._root, seed, round, i, purpose)
                results.append(exchange.local_update(key, state.server.shared, trees.take(state.agents, i), trees.take(members, i)))
        with stage(f"{where}, aggregate"):
            self._states[seed] = settle(state, round, exchange.aggregate, *trees.stack(results))
        if purpose is Purpose.WARMUP:
            self.log.collect(0, "warm-up")
        else:
            self.log.collect(round, "training")

    @functools.cached_property
    def traffic(self) -> traffic.Traffic:
        with stage("counting what one agent sends"):
            return traffic.measure(self._problem, self._algorithm, self._agents[0], shapes_of=lambda function, *args: function(*args))

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
            for number, exchange in enumerate(self._algorithm.warmup):
                self._round(exchange, Purpose.WARMUP, seed, number)

    def advance(self, first: int, count: int) -> None:
        exchange = Exchange(self._algorithm.local_update, self._algorithm.aggregate)
        for seed in range(self.seeds):
            for round in range(first, first + count):
                self._round(exchange, Purpose.TRAIN, seed, round)

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

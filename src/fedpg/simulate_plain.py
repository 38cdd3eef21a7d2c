"""The plain simulator: Python loops over seeds, rounds, agents and steps, nothing compiled.

It is the readable version that `fedpg.simulate` is tested against, with the same interface and the same results up to rounding. A print
or a breakpoint in an algorithm, a policy or an environment works, and an error names the stage in which it happened.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from fedpg import rounds, trees
from fedpg.algorithms.base import Algorithm, LocalUpdate
from fedpg.algorithms.selection import EVERYONE, Participation, Selector, selector
from fedpg.communication import Communication, measure
from fedpg.envs.host import HostEnvironment
from fedpg.events import EventLog
from fedpg.keys import Moment, Purpose
from fedpg.problem import Problem
from fedpg.rounds import Participants, Scores, SeedState, Stage, run_round
from fedpg.simulate import PRECISION, Agents, Info, State, agents_of_seeds, prepared
from fedpg.trees import Params


class StageError(RuntimeError):
    """An error with the name of the stage it came from; the original is its cause."""


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Runs what is inside without compiling it, and names the stage of any error raised there."""
    try:
        with jax.disable_jit(), jax.default_matmul_precision(PRECISION):
            yield
    except Exception as error:
        raise StageError(f"{name}: {type(error).__name__}: {error}") from error


class OneByOne:
    """Executes the parts of a round for one agent after another. See `fedpg.rounds.Executor`.

    Args:
        where: the seed and the round, for error messages.
    """

    def __init__(self, where: str) -> None:
        self.where = where

    def ask(self, stage: Stage, moment: Moment, update: LocalUpdate, shared: Any, who: Participants, states: Any, members: Any) -> Any:
        ids = who.numbers()
        keys = stage.keys(moment, ids)

        def one(i: int) -> Any:
            return update(keys[i], shared, trees.take(states, i), trees.take(members, i))

        return self._each("local_update", ids, one), jnp.ones(len(ids), bool)

    def report(self, moment: Moment, select: Selector, params: Any, ids: jax.Array, members: Any) -> Any:
        keys = moment.agent_keys(ids, Purpose.REPORT)
        return self._each("report", ids, lambda i: select.report(keys[i], params, trees.take(members, i)))

    def compute(self, what: str, function: Callable[..., Any], *args: Any, **static: Any) -> Any:
        with stage(f"{self.where}, {what}"):
            return function(*args, **static)

    def _each(self, what: str, ids: jax.Array, one: Callable[[int], Any]) -> Any:
        """The results one(0), one(1), ... of the agents `ids`, with a leading axis."""
        results = []
        for i, agent in enumerate(ids.tolist()):
            with stage(f"{self.where}, agent {agent}, {what}"):
                results.append(one(i))
        return trees.stack(results)


class PlainSimulator:
    """Runs one algorithm seed by seed, agent by agent. See `fedpg.simulate.simulator` for the arguments."""

    save_every = 60.0

    def __init__(
        self, problem: Problem, algorithm: Algorithm, agents: Agents, *, seeds: int = 1, participation: Participation = EVERYONE
    ) -> None:
        self._problem, self._algorithm, self._agents, self._participation = problem, algorithm, agents, participation
        self.seeds = self.rows = seeds
        self._host = problem.environment.host if isinstance(problem.environment, HostEnvironment) else None
        self.events = EventLog(self._host, 1)

    def blank(self, key: jax.Array) -> State:
        """The state before the warm-up."""
        with stage("drawing the agents"):
            agents = prepared(self._agents, agents_of_seeds(self._agents, key, self.seeds))
        agents = jax.tree.map(jnp.asarray, agents)
        selector(self._participation, self._problem, self._algorithm, trees.take(agents, 0), self._call)
        self.events = EventLog(self._host, jax.tree.leaves(agents)[0].shape[1])
        rows = []
        for seed in range(self.seeds):
            with stage(f"seed {seed}, init"):
                count = trees.leading_axis(rounds.participants(self._algorithm, trees.take(agents, seed)))
                rows.append(rounds.initial_state(self._problem, self._algorithm, key, seed, count))
        return State(key, jnp.zeros((), int), trees.stack(rows), agents)

    def init(self, key: jax.Array) -> State:
        """The state before round 0: agents drawn, params initialised, warm-up done."""
        state, rows = self.blank(key), []
        for seed in range(self.seeds):
            row, agents = trees.take(state.rows, seed), trees.take(state.agents, seed)
            for number in range(len(self._algorithm.warmup)):
                row = rounds.warm_up(self._algorithm, number, OneByOne(f"seed {seed}, warm-up"), agents, key, seed, row)
            rows.append(row)
        self.events.collect(0, "warm-up")
        return state._replace(rows=trees.stack(rows))

    def run(self, state: State, rounds: int, *, accumulate: bool = False) -> tuple[State, Info]:
        """Runs `rounds` more rounds on every seed."""
        rows = []
        for seed in range(self.seeds):
            row, agents = trees.take(state.rows, seed), trees.take(state.agents, seed)
            rows.append(self._run_seed(state, seed, row, agents, rounds, accumulate))
        joined = trees.stack(rows)
        return state._replace(round=state.round + rounds, rows=joined), Info(joined.info, joined.refused, joined.latest)

    def _run_seed(self, state: State, seed: int, row: SeedState, agents: Any, count: int, accumulate: bool) -> SeedState:
        row = row if accumulate else rounds.clear_counters(row)
        select = selector(self._participation, self._problem, self._algorithm, agents, self._call)
        for round in range(int(state.round), int(state.round) + count):
            row = run_round(
                self._algorithm, select, OneByOne(f"seed {seed}, round {round}"), agents, state.key, seed, jnp.asarray(round), row
            )
            self.events.collect(round, "training")
        return row

    def evaluate(self, state: State) -> Scores:
        """The scores of every seed, leading axis seeds."""
        found = []
        for seed in range(self.seeds):
            with stage(f"seed {seed}, round {int(state.round)}, evaluate"):
                moment, row = Moment(state.key, seed, state.round), trees.take(state.rows, seed)
                found.append(rounds.evaluate(self._problem, self._algorithm, moment, row, trees.take(state.agents, seed)))
        self.events.collect(int(state.round), "evaluation")
        return trees.stack(found)

    def params(self, state: State) -> Params:
        """What agents would deploy: leading axis seeds, or (seeds, N) for personal algorithms."""
        return trees.stack([rounds.deployed_params(self._algorithm, trees.take(state.rows, seed)) for seed in range(self.seeds)])

    def constants(self, state: State) -> Any:
        """The agents as drawn, before they were prepared for the environment, axes (seeds, N, ...)."""
        return agents_of_seeds(self._agents, state.key, self.seeds)

    def communication(self, state: State) -> Communication:
        """How many numbers one seed sends."""
        return measure(self._problem, self._algorithm, trees.take(state.agents, 0), self._participation, self._call)

    @staticmethod
    def _call(function: Callable[..., Any], *args: Any) -> Any:
        """function(*args), where an engine that compiles would only trace it."""
        with stage("tracing what one agent sends"):
            return function(*args)

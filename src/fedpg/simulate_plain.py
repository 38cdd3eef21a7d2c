"""The plain simulator: Python loops over seeds, rounds, agents and steps, nothing compiled.

It is the readable version that `fedpg.simulate` is tested against, with the same interface and the same results up to rounding. A print
or a breakpoint in an algorithm, a policy or an environment works, and an error names the stage in which it happened.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from fedpg import trees
from fedpg.algorithms.base import Algorithm, LocalUpdate
from fedpg.algorithms.selection import EVERYONE, Participation, Selector
from fedpg.errors import UserError, one_line
from fedpg.keys import Moment, Purpose
from fedpg.problem import Problem
from fedpg.rounds import Participants, SeedState, Stage
from fedpg.simulate import PRECISION, Agents, Row, Simulator, State, all_rows, row_programs


class StageError(UserError):
    """An error with the name of the stage it came from; the original is its cause."""


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Runs what is inside without compiling it, and names the stage of any error raised there."""
    try:
        with jax.disable_jit(), jax.default_matmul_precision(PRECISION):
            yield
    except StageError:
        raise
    except Exception as error:
        raise StageError(one_line(f"{name}: {type(error).__name__}: {error}")) from error


class OneByOne:
    """Executes the parts of a round for one agent after another. See `fedpg.rounds.Executor`."""

    def ask(self, stage: Stage, moment: Moment, update: LocalUpdate, shared: Any, who: Participants, states: Any, members: Any) -> Any:
        ids = who.numbers()
        keys = stage.keys(moment, ids)
        during = "warm-up" if stage.purpose is Purpose.WARMUP else f"round {int(moment.round)}"

        def one(i: int) -> Any:
            return update(keys[i], shared, trees.take(states, i), trees.take(members, i))

        return self._each(f"seed {moment.seed}, {during}", "local_update", ids, one), jnp.ones(len(ids), bool)

    def report(self, moment: Moment, select: Selector, params: Any, ids: jax.Array, members: Any) -> Any:
        keys = moment.agent_keys(ids, Purpose.REPORT)

        def one(i: int) -> Any:
            return select.report(keys[i], params, trees.take(members, i))

        return self._each(f"seed {moment.seed}, round {int(moment.round)}", "report", ids, one)

    def compute(self, what: str, moment: Moment, function: Callable[..., Any], *args: Any, **static: Any) -> Any:
        with stage(f"seed {moment.seed}, round {int(moment.round)}, {what}"):
            return function(*args, **static)

    def _each(self, where: str, what: str, ids: jax.Array, one: Callable[[int], Any]) -> Any:
        """The results one(0), one(1), ... of the agents `ids`, with a leading axis."""
        results = []
        for i, agent in enumerate(ids.tolist()):
            with stage(f"{where}, agent {agent}, {what}"):
                results.append(one(i))
        return trees.stack(results)


class Plain:
    """The programs of a simulation, called row by row. Takes the place of `fedpg.simulate.Compiled`."""

    def __init__(self, programs: dict[str, Callable[..., Any]], rows: Row) -> None:
        self._programs, self._rows = programs, rows

    def call(self, name: str, key: jax.Array, agents: Any, rows: SeedState | None, *numbers: Any) -> Any:
        """Calls a program for every row and stacks the results."""
        results = []
        for seed in self._rows.seed.tolist():
            state = () if rows is None else (jax.tree.map(jnp.asarray, trees.take(rows, seed)),)
            members = jax.tree.map(jnp.asarray, trees.take(agents, seed))
            with stage(f"seed {seed}, {name}"):
                results.append(self._programs[name](key, Row(seed), members, *state, *numbers))
        return trees.stack(results)

    def blank(self, key: jax.Array, agents: Any) -> SeedState:
        """The rows of a state before the warm-up."""
        return self.call("blank", key, agents, None)

    def compile(self, state: State) -> None:
        """Does nothing."""


def plain_simulator(
    problem: Problem, algorithm: Algorithm, agents: Agents, *, seeds: int = 1, participation: Participation = EVERYONE
) -> Simulator:
    """A simulator of plain Python loops: nothing is compiled, so breakpoints and prints work.

    Args:
        problem: what is learned and how it is evaluated.
        algorithm: how it is learned.
        agents: as in `fedpg.simulator`.
        seeds: how many seeds, numbered from 0.
        participation: how many agents take part in a round, and which; everyone by default.
    """
    rows = all_rows(seeds)
    programs = Plain(row_programs(problem, lambda setting: algorithm, participation, OneByOne()), rows)
    return Simulator(problem, algorithm, agents, rows, seeds, participation, programs)

"""The engine of a real federation: the server half here, every agent behind a link, on a machine of its own.

The order of a round, the keys, refusals and checkpoints are those of the other engines (`fedpg.sequence`). Where those hold
an agent's state, this one holds the number of a state that the agent holds (`fedpg.flower.tasks`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg import communication as traffic
from fedpg import trees
from fedpg.algorithms.base import Algorithm, LocalUpdate
from fedpg.algorithms.selection import EVERYONE, Participation, Selector, Who, selector
from fedpg.flower import tasks
from fedpg.flower.answers import Grade, Report, Update, stacked
from fedpg.flower.asking import Asking, Heard
from fedpg.keys import Moment, Purpose
from fedpg.problem import Problem
from fedpg.rounds import HEALTHY, Scores, SeedState, no_info, start
from fedpg.sequence import Stage, play, stages_of_a_round, warm_up
from fedpg.simulate import COMPILER_OPTIONS

TRIES = 3
"""How often agents are asked that answer, but with nothing that can be used, before the run stops."""
PAUSE = 1.0
"""Seconds before they are asked again."""
COME_BACK = 30.0
"""Seconds that agents get to come back after the server was restarted, before it goes on with those that are there."""


class Fewest(NamedTuple):
    """The fewest answers to an exchange of this round, and the fewest that could be used."""

    answers: int
    usable: int


class Remote:
    """Runs one algorithm with agents that are asked through a link. One seed.

    Args:
        problem: what is learned; only its shapes are used here, unless the algorithm's server has an environment of its own.
        algorithm: how.
        agents: the server's own idea of the agents, leading axis N; used only by servers with an environment of their own.
        asking: sends tasks and reads answers.
        root: the run's `--seed`.
        quorum: the fewest messages that make a round.
        start_with: how many agents must be there before the first exchange.
        participation: how many agents take part in a round, and which.
        withheld: whether all agents keep their scores and costs to themselves, so that nobody is asked.

    Attributes are those of the other engines. `withheld` is also whether none of those who answered the last evaluation told.
    """

    seeds = 1
    save_every = 0.0
    constants: Any = ()

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        agents: Any,
        asking: Asking,
        *,
        root: int = 0,
        quorum: int = 1,
        start_with: int = 1,
        participation: Participation = EVERYONE,
        withheld: bool = False,
    ) -> None:
        self._problem, self._own, self._asking = problem, agents, asking
        self._root, self._quorum, self._private, self.withheld, self.log = root, quorum, withheld, withheld, asking
        self._algorithm = algorithm if algorithm.personal else _without_states(problem, algorithm)
        self.count = jax.tree.leaves(agents)[0].shape[0]
        self._select = selector(participation, problem, algorithm, agents)
        self.traffic = traffic.measure(problem, algorithm, agents, participation)
        self._stages = stages_of_a_round(algorithm)
        self._keep = np.full(self.count, tasks.BEGINNING)
        self._fewest, self._start_with = Fewest(0, 0), start_with
        self._out = self._silent = np.zeros(self.count, bool)
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._reports: Report | None = None
        self._state: SeedState | None = None

    def agents(self) -> Any:
        """Nothing is known of the agents' environments."""
        return ()

    def template(self) -> SeedState:
        """The shapes of `state()`."""
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), jax.eval_shape(self._begin))

    def _begin(self) -> SeedState:
        state = start(self._problem, self._algorithm, self._root, 0, self.count)
        return state._replace(agents=jnp.full(self.count, tasks.BEGINNING))

    def start(self) -> None:
        """Round 0, with the warm-up."""
        self._state = jax.jit(self._begin)()
        self._asking.wait_for(self._start_with, 0, "warm-up")
        for number in range(len(self._algorithm.warmup)):
            moment = Moment(self._root, 0, number)
            self._repeat(0, "warm-up", lambda n=number, m=moment: warm_up(self._algorithm, n, m, self._state, self._own, self))
            if int(self._state.failed) != HEALTHY:
                break

    def advance(self, first: int, count: int) -> None:
        """Runs rounds first .. first+count-1."""
        for round in range(first, first + count):
            moment = Moment(self._root, 0, round)
            self._repeat(round, "training", lambda m=moment: self._play(m))

    def _play(self, moment: Moment) -> SeedState:
        """A round. Where not everybody takes part, whoever is not there, or had nothing to say before, gives way to others."""
        absent = None
        if self._select is not None:
            there = np.isin(np.arange(self.count), list(self._asking.link.present()))
            absent = jnp.asarray(self._silent | ~there)
        return play(self._algorithm, self._select, moment, self._state, self._own, self, absent)

    def _repeat(self, round: int, during: str, once: Callable[[], SeedState]) -> None:
        """Does `once` until enough agents took part; gives up only where they did, and nothing that they sent could be used."""
        self._keep, self._silent = np.asarray(self._state.agents), np.zeros(self.count, bool)
        refusals = 0
        while True:
            self._asking.wait_for(self._quorum, round, during)
            self._fewest, self._out = Fewest(self.count, self.count), np.zeros(self.count, bool)
            after = once()
            if int(after.failed) == HEALTHY and self._fewest.usable >= self._quorum:
                break
            self._silent |= self._out
            refusals += self._fewest.answers >= self._quorum
            if refusals == TRIES:
                after = self._state._replace(failed=jnp.asarray(round, self._state.failed.dtype))
                break
            few = self._fewest.usable < self._quorum
            reason = f"fewer than {self._quorum} usable messages" if few else "numbers that are not finite came of the messages"
            self._asking.note(None, f"{reason}: the exchange is repeated")
            time.sleep(PAUSE)
        self._state = jax.block_until_ready(after)

    def exchange(self, stage: Stage, moment: Moment, shared: Any, who: Who, states: Any, members: Any, update: LocalUpdate) -> Any:
        """Asks the participants for their messages. One that is refused counts as one that is not finite.

        Whoever is out of the round already is not asked; nobody is if the round must be repeated.
        """
        template = Update(stage.exchange(self._algorithm).message(shared), no_info())
        ids, starts = np.asarray(who.numbers()), np.asarray(states)
        going = ~self._out[ids] & (self._fewest.usable >= self._quorum)
        result = self._number(stage, int(moment.round))
        wanted = tasks.Task(tasks.UPDATE, "", "", round=int(moment.round), purpose=int(stage.purpose), number=stage.number, result=result)
        found = iter(self._asking.ask(wanted, shared, template, ids[going], starts[going], self._keep[ids[going]]))
        heard = [next(found) if asked else Heard(False, None) for asked in going]
        sent = stacked(heard, template)
        answered, usable = (np.array(of) for of in ([one.answered for one in heard], [one.tree is not None for one in heard]))
        if going.any():
            self._fewest = Fewest(min(self._fewest.answers, answered.sum()), min(self._fewest.usable, usable.sum()))
            self._out[ids] |= ~usable
        return (sent.message, jnp.full(len(ids), result), sent.info), jnp.asarray(answered)

    def _number(self, stage: Stage, round: int) -> int:
        """The number of the states that an exchange leads to: they grow through a run."""
        if stage.purpose is Purpose.WARMUP:
            return stage.number
        return len(self._algorithm.warmup) + round * len(self._stages) + self._stages.index(stage)

    def report(self, moment: Moment, select: Selector, params: Any, ids: jax.Array, members: Any) -> Any:
        """Asks the candidates. Whoever does not answer is wanted least."""
        if self._reports is None:
            one, _ = jax.eval_shape(select.report, jax.random.key(0), params, trees.take(self._own, 0))
            self._reports = Report(one, no_info())
        wanted = tasks.Task(tasks.REPORT, "", "", round=int(moment.round), purpose=int(Purpose.REPORT))
        found = stacked(self._asking.ask(wanted, params, self._reports, np.asarray(ids), None, None), self._reports)
        return found.report, found.info

    def once(self, what: str, function: Callable[..., Any], *args: Any, **constants: Any) -> Any:
        """function(*args, **constants), compiled the first time."""
        name = (what, function, *constants.values())
        if name not in self._programs:
            options = COMPILER_OPTIONS.get(jax.default_backend())
            self._programs[name] = jax.jit(functools.partial(function, **constants), compiler_options=options)
        return self._programs[name](*args)

    def evaluate(self, round: int) -> Scores:
        """Asks every agent how good the params are in its environment; NaN for those that do not say."""
        ids, refusals = np.arange(self.count), 0
        if self._private:
            none = np.full((1, self.count), np.nan)
            return Scores(none, none, None, None)
        template = Grade(*jax.eval_shape(lambda: (jnp.zeros(()),) * 2))
        wanted = tasks.Task(tasks.EVALUATE, "", "", round=round, purpose=int(Purpose.EVALUATE))
        starts = np.asarray(self._state.agents)
        while True:
            self._asking.wait_for(1, round, "evaluation")
            heard = self._asking.ask(wanted, self._state.server.shared, template, ids, starts, starts)
            told, kept = any(one.tree is not None for one in heard), any(one.withheld for one in heard)
            refusals += any(one.answered for one in heard)
            if told or kept or refusals == TRIES:
                break
            time.sleep(PAUSE)
        self.withheld = kept and not told
        found = stacked(heard, template)
        return Scores(np.asarray(found.total_return)[None], np.asarray(found.objective)[None], None, None)

    def state(self) -> SeedState:
        """The state as NumPy arrays with a leading axis of one."""
        return jax.tree.map(lambda x: np.asarray(x)[None], self._state)

    def load(self, state: SeedState) -> None:
        """Goes on from a state that `state` returned. After a restart agents get a while to come back."""
        if self._state is None:
            self._asking.wait_for(self._start_with, 0, "resuming", COME_BACK)
        self._state = jax.tree.map(lambda x: jnp.asarray(x[0]), state)

    def reset_info(self) -> None:
        """Forgets what was counted since the last evaluation."""
        self._state = self._state._replace(info=no_info(), refused=jnp.zeros_like(self._state.refused))


def _without_states(problem: Problem, algorithm: Algorithm) -> Algorithm:
    """`algorithm`, whose agents all deploy the same params, for one who has only numbers where their states belong."""
    _, like = jax.eval_shape(lambda: algorithm.init(problem.init_params(jax.random.key(0))))
    return algorithm._replace(deployed=lambda shared, number: algorithm.deployed(shared, like))

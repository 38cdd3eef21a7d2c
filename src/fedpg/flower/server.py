"""The engine of a federation between machines: the server half runs here, every agent runs behind a link.

The order of a round, the keys, refusals and checkpoints are those of the simulator (`fedpg.rounds`). Where the simulator holds an
agent's state, this engine holds the number of a state that the agent holds (`fedpg.flower.protocol`).
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from fedpg import named_arrays, rounds, trees
from fedpg.algorithms import base
from fedpg.algorithms.base import Algorithm, LocalUpdate
from fedpg.algorithms.selection import Selector, selector
from fedpg.communication import Communication, measure
from fedpg.flower.event_queue import EventQueue
from fedpg.flower.pace import Pace, Patience, clock, waiting_line
from fedpg.flower.protocol import FIRST_STATE, Grade, Left, Refused, Task, Update, pack, read_answer
from fedpg.flower.seats import LEFT, Seats
from fedpg.flower.status import ABSENT, StatusWriter
from fedpg.keys import Moment, Purpose
from fedpg.problem import Problem
from fedpg.rounds import HEALTHY, Participants, Scores, SeedState, Stage, deployed_params, run_round, stages_of_round
from fedpg.runs.setup import Prepared
from fedpg.runs.training import MEMBERSHIP
from fedpg.simulate import COMPILER_OPTIONS, PRECISION, Info, State, agents_of_seeds

TRIES = 3
"""How often an exchange is tried in which agents answer, but with nothing that can be used."""
PAUSE = 1.0
"""Seconds between two tries."""
RETURN_SECONDS = 30.0
"""How long agents have to come back after the server was restarted, before it continues with those that are there."""
BEFORE = ("starting", "warm-up")
"""While the server is at this, an agent that comes is no news."""
LOOK_SECONDS = 0.3
"""Seconds between looks while too few agents are there."""


class Link(Protocol):
    """The way to the agents."""

    def present(self) -> set[int]:
        """The agents that can be asked now."""

    def ask(
        self, packets: dict[int, bytes], seconds: float, enough: Callable[[set[int], float], bool] = ...
    ) -> Iterator[tuple[int, bytes | str]]:
        """Sends every agent its packet; yields each agent's answer when it comes, or one line that says why there is none.

        `enough` is called with the agents that have not answered and the seconds so far; True ends the waiting.
        """

    def late(self) -> dict[int, bytes]:
        """The answers that have come since their time was up, each once."""

    def tell(self, kind: str, text: str, seconds: float) -> None:
        """Sends all agents that are there, or late with an answer, a line, and waits up to `seconds` until they have it."""

    def leaving(self) -> set[int]:
        """The agents that have said that they leave for good, until `farewell`."""

    def farewell(self, agent: int) -> None:
        """Tells an agent that the server knows that it leaves; it is not there any more."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """How a server treats its agents."""

    deadline: float = 0.0
    """Seconds to wait for answers; who has not answered by then is absent. 0: four times what agents usually take, at least 10."""
    quorum: int = 1
    """The fewest usable messages that make a round; with fewer it is repeated. Agents that leave for good lower it if too few remain."""
    norm_bound: float = 1e9
    """Messages with a larger L2 norm are refused."""
    start_with: int = 0
    """The agents that must be there before the first exchange; others may join at any time. 0: all of them."""
    min_agents_per_round: int = 0
    """The answers with which a round may end; later ones count in the next. 0: wait for all, except for agents known to be slow."""
    max_staleness: int = 16
    """The most rounds by which an answer may come late and still count, if the algorithm allows it; 0: none."""


class RunTerms(NamedTuple):
    """What all tasks of a run have in common: its name, the agents' configuration as TOML, N, and the shapes that agents must have."""

    run: str
    config: str
    agents: int
    shapes: str = ""


class Reply(NamedTuple):
    """What came back from one agent.

    Attributes:
        answered: whether an answer came.
        tree: its content, if it can be used.
        withheld: whether the agent keeps that to itself.
        to_state: the number of the state that the agent has after it.
    """

    answered: bool
    tree: Any
    withheld: bool = False
    to_state: int = FIRST_STATE


class RemoteAgents:
    """The agents of a run behind a link: sends them tasks, checks their answers, and records what goes wrong.

    The link may be set later. `events` is also the engine's event log. `seats` says who has been there, and who has left for good.
    """

    def __init__(
        self,
        terms: RunTerms,
        rules: Rules,
        link: Link | None = None,
        status: StatusWriter | None = None,
        events: EventQueue | None = None,
        seats: Seats | None = None,
    ) -> None:
        self._terms, self.rules, self.link, self._status = terms, rules, link, status
        self.events, self.seats = events or EventQueue(), seats or Seats(terms.agents)
        if status:
            status.left(self.seats.left)
        self.note = self.events.note
        self._serial = time.time_ns() // 1000  # above the serial numbers of earlier processes of this run
        self.pace, self._unanswered = Pace(rules.deadline), dict[int, tuple[Task, float]]()  # agent -> a task, and when it was sent
        self._late: dict[int, tuple[Task, bytes]] = {}  # agent -> an answer that came late, and its task

    @property
    def quorum(self) -> int:
        """The fewest usable messages that make a round, now that some agents may have left for good."""
        return max(1, min(self.rules.quorum, len(self.seats.members)))

    @property
    def to_begin(self) -> int:
        """How many agents must be there before the first exchange."""
        return max(1, min(max(self.rules.start_with or self.seats.count, self.rules.quorum), self.seats.count - len(self.seats.left)))

    @property
    def to_go_on(self) -> int:
        """How many agents should be there when a restarted server goes on."""
        return min(self.rules.start_with or self.seats.count, len(self.seats.members) or self.to_begin)

    def present(self) -> set[int]:
        """The agents that can be asked now. Records who has come and who has left for good."""
        self._part()
        present = self.link.present()
        for agent, line in self.seats.arrive(present).items():
            if self.events.during not in BEFORE:
                self.note(agent, line, MEMBERSHIP)
        return present

    def _part(self, also: Iterable[int] = ()) -> None:
        """Parts with the agents that leave for good. They hear of it when it is on record."""
        for agent in sorted(self.link.leaving().union(also)):
            if agent not in self.seats.left:
                self.seats.leave(agent)
                self.note(agent, LEFT, MEMBERSHIP)
                if self._status:
                    self._status.left({agent})
            self.link.farewell(agent)

    def wait_for(self, needed: Callable[[], int], round: int, during: str, seconds: float = math.inf) -> None:
        """Returns when `needed()` agents are there, or after `seconds`. What follows belongs to `round` and `during`."""
        self.events.round, self.events.during = round, during
        told, since, end = "", clock(), time.monotonic() + seconds
        while time.monotonic() < end and len(present := self.present()) < (wanted := needed()):
            line = self.seats.waiting_line(present, wanted, since)
            if self._status:
                self._status.waiting(round, present, line)
            if line != told:
                self.note(None, line)
            told = line
            time.sleep(LOOK_SECONDS)

    def ask(
        self, task: Task, content: Any, template: Any, ids: list[int], states: Any = None, keep: Any = None, late: bool = False
    ) -> list[Reply]:
        """Sends `task` with the tree `content` to the agents `ids`; returns what came back, in the order of `ids`.

        Args:
            task: without what is different for every agent.
            content, template: the tree that all get, and the shapes of the tree that each must send back.
            ids: who is asked.
            states, keep: the numbers of the state that each starts from and of the one it must keep; None if it needs none.
            late: whether an answer to the same question of an earlier round counts.
        """
        arrays, present, tasks, packets = named_arrays.flatten(content), self.present(), {}, {}
        seconds = self.pace.deadline(task.kind)
        replies = dict.fromkeys(ids, Reply(False, None)) | self._came_late(task, template, set(ids), late)
        for i, agent in enumerate(ids):
            if agent in present and not replies[agent].answered:
                self._serial += 1
                own = {} if states is None else {"from_state": int(states[i]), "keep_state": int(keep[i])}
                common = {"run": self._terms.run, "config": self._terms.config, "seconds": seconds}
                tasks[agent] = msgspec.structs.replace(task, serial=self._serial, **common, **own)
                packets[agent] = pack(tasks[agent], arrays)
        if self._status:
            self._status.asked(self.events.round, self.events.during, list(packets), sum(map(len, packets.values())))
        began, patience = time.monotonic(), Patience(self, task.kind, len(packets))
        self._unanswered |= {agent: (sent, began) for agent, sent in tasks.items()}

        def is_over(waiting: set[int], elapsed: float) -> bool:
            self._part()
            return patience.is_over(waiting, elapsed)

        for agent, answer in self.link.ask(packets, seconds, is_over) if packets else ():
            if isinstance(answer, str) and agent in self.seats.left:
                continue
            took = time.monotonic() - began
            replies[agent] = self._read(agent, tasks[agent], answer, template, took)
            if replies[agent].answered:
                self._unanswered.pop(agent, None)
            if agent not in self.seats.left:
                self.pace.took(task.kind, agent, took if replies[agent].answered else math.inf)
        open_ = {agent for agent in ids if not replies[agent].answered}
        replies |= self._came_late(task, template, open_, late)
        for agent in sorted((open_ - packets.keys()) & self.seats.members):
            if not replies[agent].answered:
                self.note(agent, ABSENT)
        return list(replies.values())

    def _came_late(self, task: Task, template: Any, ids: set[int], usable: bool) -> dict[int, Reply]:
        """The answers of `ids` to the question of `task` in an earlier round that have come since, and are not too old."""
        for agent, answer in self.link.late().items() if self._unanswered else ():
            if agent in self._unanswered:
                asked, began = self._unanswered.pop(agent)
                if (took := time.monotonic() - began) < self.pace.deadline(asked.kind):
                    self.pace.took(asked.kind, agent, took)  # it was not waited for, but is slow no more
                self._late[agent] = asked, answer
        found = {}
        for agent in sorted(ids & self._late.keys()) if usable else ():
            asked, answer = self._late.pop(agent)
            if (asked.kind, asked.purpose, asked.number) == (task.kind, task.purpose, task.number):
                if task.round - asked.round > self.rules.max_staleness:
                    self.note(agent, f"its answer to round {asked.round + 1} came too late to count")
                    continue
                self.note(agent, f"its answer to round {asked.round + 1} came late, and counts in round {task.round + 1}")
                found[agent] = self._read(agent, asked, answer, template, math.nan)
        return found

    def _read(self, agent: int, task: Task, answer: bytes | str, template: Any, seconds: float) -> Reply:
        came, tree, problem = isinstance(answer, bytes), None, ""
        try:
            if not came:
                raise Refused(answer)
            tree = read_answer(answer, agent, task, template, self.rules.norm_bound, self.note)
        except Left:
            self._part({agent})
            return Reply(False, None)
        except Refused as refused:
            problem = str(refused)
            self.note(agent, f"refused: {problem}" if came else problem)
        if self._status:
            self._status.answered(agent, seconds, len(answer) if came else 0, problem)
        return Reply(came, tree, withheld=came and tree is None and not problem, to_state=task.to_state)

    def slow(self, agents: set[int], since: str) -> None:
        """Records that the exchange waits for some agents longer than usual."""
        line = waiting_line(agents, since)
        self.note(None, line)
        if self._status:
            self._status.slow(line)


class Server:
    """Runs one algorithm, on one seed, with agents on other machines: an engine like `fedpg.simulate.Simulator`.

    Args:
        prepared: what is learned, and how. Its environments only give shapes, unless the algorithm's server has one of its own.
        remote: the agents.
        withheld: whether all agents withhold their scores, so that no agent is asked.

    Attributes:
        withheld: also whether no agent that answered the last evaluation gave its scores.
    """

    seeds = rows = 1
    save_every = 0.0

    def __init__(self, prepared: Prepared, remote: RemoteAgents, withheld: bool = False) -> None:
        self._problem, algorithm_of, self._federation, self._participation = prepared
        self._measured = algorithm = algorithm_of({})
        self._remote = remote
        self._algorithm = algorithm if algorithm.personal else _without_states(self._problem, algorithm)
        self._stages, self._private, self.withheld, self.events = stages_of_round(algorithm), withheld, withheld, remote.events
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._started = False

    def init(self, key: jax.Array) -> State:
        """The state before round 0: params initialised, warm-up done."""
        state = self.blank(key)
        row, agents, self._started = trees.take(state.rows, 0), trees.take(state.agents, 0), True
        self._remote.wait_for(lambda: self._remote.to_begin, 0, "warm-up")
        for number in range(len(self._algorithm.warmup)):
            row = self._repeat(row, 0, "warm-up", lambda n=number, r=row: rounds.warm_up(self._algorithm, n, self, agents, key, 0, r))
            if int(row.failed) != HEALTHY:
                break
        return state._replace(rows=_with_axis(row))

    def blank(self, key: jax.Array) -> State:
        """The state before the warm-up, into which a checkpoint can be restored."""
        drawn, prepare = agents_of_seeds(self._federation, key, 1), self._federation.prepare
        agents = jax.tree.map(np.asarray, prepare(drawn)) if prepare else drawn
        own = trees.take(agents, 0)
        count = trees.leading_axis(own)
        self._select = selector(self._participation, self._problem, self._algorithm, own)
        row = rounds.initial_state(self._problem, self._algorithm, key, 0, count)._replace(agents=jnp.full(count, FIRST_STATE))
        return State(key, np.asarray(0), _with_axis(row), agents)

    def compile(self, state: State) -> None:
        """Does nothing: rounds are computed by agents."""

    def run(self, state: State, rounds: int, *, accumulate: bool = False) -> tuple[State, Info]:
        """The state after `rounds` more rounds, and their costs; with `accumulate` the costs of earlier calls are added."""
        row, agents = jax.tree.map(lambda x: jnp.asarray(x[0]), state.rows), trees.take(state.agents, 0)
        if not accumulate:
            row = row._replace(info=base.no_cost(), refused=jnp.zeros_like(row.refused))
        self._wait_after_restart(state)
        for round in range(int(state.round), int(state.round) + rounds):
            one_round = functools.partial(run_round, self._algorithm, self._select, self, agents, state.key, 0, round, row)
            row = self._repeat(row, round, "training", lambda once=one_round: once(self._absent() if self._select else None))
        after = _with_axis(row)
        return State(state.key, state.round + rounds, after, state.agents), Info(after.info, after.refused, after.latest)

    def evaluate(self, state: State) -> Scores:
        """The scores that the agents measure in their environments; NaN for those that do not say."""
        count, refusals = len(state.rows.agents[0]), 0
        self._wait_after_restart(state)
        template = Grade(*jax.eval_shape(lambda: (jnp.zeros(()),) * 2))
        task = Task("evaluate", "", "", round=int(state.round), purpose=Purpose.EVALUATE)
        shared, numbers = trees.take(state.rows.server.shared, 0), np.asarray(state.rows.agents[0])
        if self._private:  # nobody says how good it is, but those who want the policy get it
            self._remote.ask(task, shared, template, list(range(count)), numbers, numbers)
            unknown = np.full((1, count), np.nan)
            return Scores(unknown, unknown, None, None)
        while True:
            self._remote.wait_for(lambda: 1, int(state.round), "evaluation")
            replies = self._remote.ask(task, shared, template, list(range(count)), numbers, numbers)
            scored, withheld = any(one.tree is not None for one in replies), any(one.withheld for one in replies)
            refusals += any(one.answered for one in replies)
            if scored or withheld or refusals == TRIES:
                break
            time.sleep(PAUSE)
        self.withheld = withheld and not scored
        found = _stacked(replies, template)
        return Scores(np.asarray(found.total_return)[None], np.asarray(found.objective)[None], None, None)

    def params(self, state: State) -> Any:
        """What agents deploy, leading axis 1; None if every agent has its own, which it keeps."""
        return None if self._algorithm.personal else _with_axis(deployed_params(self._algorithm, trees.take(state.rows, 0)))

    @property
    def problem(self) -> Problem:
        """What is learned."""
        return self._problem

    def communication(self, state: State) -> Communication:
        """How many numbers are sent."""
        return measure(self._problem, self._measured, trees.take(state.agents, 0), self._participation)

    def _wait_after_restart(self, state: State) -> None:
        if not self._started:
            self._remote.wait_for(lambda: self._remote.to_go_on, int(state.round), "resuming", RETURN_SECONDS)
            self._started = True

    def _absent(self) -> jax.Array:
        """The agents, (N,), that are drawn last: absent ones, and those that gave nothing usable in an earlier try."""
        present = np.isin(np.arange(len(self._silent)), list(self._remote.present()))
        return jnp.asarray(self._silent | ~present)

    def _repeat(self, before: SeedState, round: int, during: str, once: Callable[[], SeedState]) -> SeedState:
        """Tries `once` until enough agents took part. It fails where they did, three times, with nothing that can be used."""
        remote, count, refusals = self._remote, len(before.agents), 0
        # What a restarted server would start from: agents must keep these states.
        self._keep, self._silent = np.asarray(before.agents), np.zeros(count, bool)
        while True:
            remote.wait_for(lambda: remote.quorum, round, during)
            # The fewest answers, and the fewest usable ones, in an exchange of this try; and who has dropped out of it.
            self._answered, self._usable, self._out = count, count, np.zeros(count, bool)
            with jax.default_matmul_precision(PRECISION):
                after = jax.block_until_ready(once())
            if int(after.failed) == HEALTHY and self._usable >= remote.quorum:
                return after
            self._silent |= self._out
            refusals += self._answered >= remote.quorum
            if refusals == TRIES:
                return before._replace(failed=jnp.asarray(round, before.failed.dtype))
            few = f"fewer than {remote.quorum} usable messages"
            reason = few if self._usable < remote.quorum else "the messages gave numbers that are not finite"
            remote.note(None, f"{reason}: the exchange is repeated")
            time.sleep(PAUSE)

    # How the parts of a round are executed: see `fedpg.rounds.Executor`.

    def ask(self, stage: Stage, moment: Moment, update: LocalUpdate, shared: Any, who: Participants, states: Any, members: Any) -> Any:
        """Asks the participants for their messages. A refused message counts as one that is not finite.

        Agents that dropped out of the round are not asked; no agent is if the round must be repeated.
        """
        template = Update(stage.exchange(self._algorithm).predicted(shared), base.no_cost())
        ids, numbers, round = np.asarray(who.numbers()), np.asarray(states), int(moment.round)
        asked = ~self._out[ids] & (self._usable >= self._remote.quorum)
        # The numbers of states grow through a run.
        after_warmup = len(self._algorithm.warmup) + round * len(self._stages)
        to_state = stage.number if stage.purpose is Purpose.WARMUP else after_warmup + self._stages.index(stage)
        task = Task("update", "", "", round=round, purpose=stage.purpose, number=stage.number, to_state=to_state)
        late = stage.purpose is Purpose.TRAIN and self._algorithm.additive and len(self._stages) == 1
        found = iter(self._remote.ask(task, shared, template, ids[asked].tolist(), numbers[asked], self._keep[ids[asked]], late))
        replies = [next(found) if one else Reply(False, None) for one in asked]
        answered, usable = np.array([one.answered for one in replies]), np.array([one.tree is not None for one in replies])
        if asked.any():
            self._answered, self._usable = min(self._answered, answered.sum()), min(self._usable, usable.sum())
            self._out[ids] |= ~usable
        sent = _stacked(replies, template)
        return (sent.message, jnp.asarray([one.to_state for one in replies]), sent.info), jnp.asarray(answered)

    def report(self, moment: Moment, select: Selector, params: Any, ids: jax.Array, members: Any) -> Any:
        """Asks the candidates for their reports; one that does not answer is preferred least."""
        one, _ = jax.eval_shape(select.report, jax.random.key(0), params, trees.take(members, 0))
        template = Update(one, base.no_cost())
        task = Task("report", "", "", round=int(moment.round), purpose=Purpose.REPORT)
        found = _stacked(self._remote.ask(task, params, template, np.asarray(ids).tolist()), template)
        return found.message, found.info

    def compute(self, what: str, moment: Moment, function: Callable[..., Any], *args: Any, **static: Any) -> Any:
        """function(*args, **static), compiled the first time."""
        name = (what, function, *static.values())
        if name not in self._programs:
            options = COMPILER_OPTIONS.get(jax.default_backend())
            self._programs[name] = jax.jit(functools.partial(function, **static), compiler_options=options)
        return self._programs[name](*args)


def _with_axis(tree: Any) -> Any:
    """A tree of NumPy arrays with a leading axis of one."""
    return jax.tree.map(lambda x: np.asarray(x)[None], tree)


def _stacked(replies: list[Reply], template: Any) -> Any:
    """What came back, leading axis m; NaN (in counts, 0) for agents without a usable answer."""
    nothing = jax.tree.map(lambda x: np.full(x.shape, np.nan if jnp.issubdtype(x.dtype, jnp.floating) else 0, x.dtype), template)
    return jax.tree.map(
        lambda *xs: jnp.stack([jnp.asarray(x) for x in xs]), *(nothing if one.tree is None else one.tree for one in replies)
    )


def _without_states(problem: Problem, algorithm: Algorithm) -> Algorithm:
    """`algorithm`, whose agents all deploy the same params, for an engine that has only the numbers of their states."""
    _, like = jax.eval_shape(lambda: algorithm.init(problem.init_params(jax.random.key(0))))
    return algorithm._replace(deployed=lambda shared, number: algorithm.deployed(shared, like))

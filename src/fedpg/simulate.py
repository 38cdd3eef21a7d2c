"""The simulator: many federations in one compiled program.

    jit( shard_map over devices of vmap over rows of loop over rounds of vmap over agents )

A row is one seed, or one seed in one setting of the hyper-parameters. Rows are cut into chunks that fit in memory.
"""

import functools
import operator
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from fedpg import memory, rounds, trees
from fedpg.algorithms.base import Algorithm, LocalInfo, LocalUpdate, RoundInfo
from fedpg.algorithms.selection import EVERYONE, Participation, Selector, selector
from fedpg.communication import Communication, measure
from fedpg.envs.base import Federation
from fedpg.envs.host import HostEnvironment
from fedpg.errors import require
from fedpg.events import EventLog
from fedpg.keys import Moment, Purpose, agent_key
from fedpg.problem import Problem
from fedpg.rounds import Executor, Participants, Scores, SeedState, Stage, run_round
from fedpg.trees import Params

Agents = Any
"""A `Federation`, arrays with a leading axis N, or a function (key, seed) -> arrays with a leading axis N."""

COMPILER_OPTIONS = {
    # The higher levels double the time to the first result and make these programs no faster.
    "cpu": {"xla_backend_optimization_level": 1},
    # Sums in a fixed order, and the same algorithms at every compilation: without them a resumed run would differ from itself.
    "gpu": {"xla_gpu_deterministic_ops": True, "xla_gpu_autotune_level": 0},
}
QUICK_OPTIONS = COMPILER_OPTIONS | {
    # Half the time to compile, and up to half as fast: for everything but the rounds themselves. Known to these versions only.
    "cpu": COMPILER_OPTIONS["cpu"] | ({"xla_cpu_use_fusion_emitters": False} if jaxlib.version.__version__.startswith("0.10.") else {}),
}
PRECISION = "highest"
"""Of matrix products. GPUs round them to TF32 by default, and results must not depend on that."""


class State(NamedTuple):
    """A simulation between two rounds.

    Attributes:
        key: the root of all random numbers.
        round: rounds done, ().
        rows: the state of every row, leading axis rows.
        agents: the agents' environments, axes (seeds, N, ...).
    """

    key: jax.Array
    round: jax.Array
    rows: SeedState
    agents: Any


class Info(NamedTuple):
    """Statistics of the rounds of one `run` call, leading axis rows.

    Attributes:
        local: costs and importance weights, added up.
        refused: refused messages of each agent, (rows, N).
        latest: the last round's RoundInfo.
    """

    local: LocalInfo
    refused: jax.Array
    latest: RoundInfo


class Row(NamedTuple):
    """One seed, whose number decides keys and agents, and the setting of its algorithm; None if all rows have the same algorithm."""

    seed: Any
    setting: Any = None


def all_rows(seeds: int, settings: Any = None) -> Row:
    """Every seed in every setting, setting-major (row = p * seeds + seed), as NumPy arrays with a leading axis.

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


def agents_of_seeds(agents: Agents, key: jax.Array, seeds: int) -> Any:
    """The agents of every seed as drawn, before they are prepared: NumPy arrays with axes (seeds, N, ...)."""
    drawn = agents.agents if isinstance(agents, Federation) else agents
    if not callable(drawn):
        return jax.tree.map(lambda x: np.broadcast_to(np.asarray(x), (seeds, *np.shape(x))), drawn)
    drawing = _drawing if isinstance(drawn, Hashable) else _drawing.__wrapped__
    return jax.tree.map(np.asarray, drawing(drawn)(key, np.arange(seeds)))


@functools.lru_cache(maxsize=8)
def _drawing(draw: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled function (key, numbers of seeds) -> the agents of every seed; the same for every simulator of these agents."""

    def of_seed(key: jax.Array, seed: jax.Array) -> Any:
        return draw(agent_key(key, seed, 0, 0, Purpose.AGENTS), seed)

    return jax.jit(jax.vmap(of_seed, (None, 0)), compiler_options=QUICK_OPTIONS.get(jax.default_backend()))


class AllAtOnce:
    """Executes the parts of a round for all agents together. See `fedpg.rounds.Executor`."""

    def ask(self, stage: Stage, moment: Moment, update: LocalUpdate, shared: Any, who: Participants, states: Any, members: Any) -> Any:
        keys = stage.keys(moment, who.numbers())
        return jax.vmap(update, (0, None, 0, 0))(keys, shared, states, members), jnp.ones(len(keys), bool)

    def report(self, moment: Moment, select: Selector, params: Any, ids: jax.Array, members: Any) -> Any:
        return jax.vmap(select.report, (0, None, 0))(moment.agent_keys(ids, Purpose.REPORT), params, members)

    def compute(self, what: str, moment: Moment, function: Callable[..., Any], *args: Any, **static: Any) -> Any:
        return function(*args, **static)


def row_programs(
    problem: Problem, algorithm_of: Callable[[Any], Algorithm], participation: Participation, executor: Executor
) -> dict[str, Callable[..., Any]]:
    """The functions of a simulation, for one row and its agents (leading axis N)."""

    def blank(root: jax.Array, row: Row, agents: Any) -> SeedState:
        algorithm = algorithm_of(row.setting)
        count = trees.leading_axis(rounds.participants(algorithm, agents))
        return rounds.initial_state(problem, algorithm, root, row.seed, count)

    def start(root: jax.Array, row: Row, agents: Any) -> SeedState:
        # The barrier keeps XLA from computing with the zeros of all rows while it compiles, which takes seconds for many.
        algorithm, state = algorithm_of(row.setting), jax.lax.optimization_barrier(blank(root, row, agents))
        for number in range(len(algorithm.warmup)):
            state = rounds.warm_up(algorithm, number, executor, agents, root, row.seed, state)
        return state

    def run_rounds(root: jax.Array, row: Row, agents: Any, state: SeedState, first: jax.Array, end: jax.Array) -> SeedState:
        algorithm = algorithm_of(row.setting)
        select = selector(participation, problem, algorithm, agents)
        one_round = functools.partial(run_round, algorithm, select, executor, agents, root, row.seed)
        return jax.lax.fori_loop(first, end, one_round, state)

    def evaluate(root: jax.Array, row: Row, agents: Any, state: SeedState, round: jax.Array) -> Scores:
        return rounds.evaluate(problem, algorithm_of(row.setting), Moment(root, row.seed, round), state, agents)

    def params(root: jax.Array, row: Row, agents: Any, state: SeedState) -> Params:
        return rounds.deployed_params(algorithm_of(row.setting), state)

    return {"blank": blank, "start": start, "run": run_rounds, "evaluate": evaluate, "params": params}


class Compiled:
    """The programs of a simulation, compiled for chunks of at most `most` rows (None: what fits in memory), on all devices.

    With `jax.distributed`, every process runs its share of the rows on its own devices, and then gets the results of the others.
    """

    def __init__(self, programs: dict[str, Callable[..., Any]], problem: Problem, rows: Row, most: int | None) -> None:
        self._problem, self._rows, self._count, self._most, self.chunk = problem, rows, len(rows.seed), most, 0
        self._share = -(-self._count // jax.process_count())
        self._host = isinstance(problem.environment, HostEnvironment)
        # Calling out of a program is cheapest on one CPU device.
        self._devices = jax.local_devices(backend="cpu")[:1] if self._host else jax.local_devices()[: self._share]
        mesh, by_row, same = Mesh(np.array(self._devices), ("rows",)), PartitionSpec("rows"), PartitionSpec()
        # With one device a plain placement: JAX would rename a sharding over it, and compile again for the new name.
        self._placement = NamedSharding(mesh, by_row) if len(self._devices) > 1 else SingleDeviceSharding(self._devices[0])
        self._placed: tuple[list[Any], list[Any]] = ([], [])
        self._programs = {}
        for name, function in programs.items():
            with_state, numbers = int(name not in ("blank", "start")), {"run": 2, "evaluate": 1}.get(name, 0)
            vectorised = jax.vmap(function, (None, *(0,) * (2 + with_state), *(None,) * numbers))
            if len(self._devices) > 1:
                specs = (same, *(by_row,) * (2 + with_state), *(same,) * numbers)
                vectorised = jax.shard_map(vectorised, mesh=mesh, in_specs=specs, out_specs=by_row, check_vma=False)
            options = COMPILER_OPTIONS if name == "run" else QUICK_OPTIONS
            self._programs[name] = jax.jit(vectorised, compiler_options=options.get(self._devices[0].platform))

    def call(self, name: str, key: jax.Array, agents: Any, rows: SeedState | None, *numbers: Any) -> Any:
        """Calls a program on every chunk of rows and joins the results."""
        chunks, results = self._chunks(agents), []
        whole = len(chunks) == 1 and self.chunk == self._count
        with jax.default_matmul_precision(PRECISION):
            for ids, (part, members) in zip(self._ids, chunks, strict=True):
                states = () if rows is None else (rows if whole else _take(rows, ids),)
                results.append(self._programs[name](key, part, members, *jax.device_put(states, self._placement), *numbers))
        own = results[0] if whole else _join(results, self._share)
        return own if jax.process_count() == 1 else _of_all_processes(own, self._count)

    def blank(self, key: jax.Array, agents: Any) -> SeedState:
        """The rows of a healthy state with the right shapes, all zero."""
        shapes = jax.eval_shape(self._programs["blank"], key, *self._chunks(agents)[0])
        rows = jax.tree.map(lambda x: np.zeros((self._count, *x.shape[1:]), x.dtype), shapes)
        return rows._replace(failed=np.full_like(rows.failed, rounds.HEALTHY))

    def lower(self, state: State) -> jax.stages.Lowered:
        """The program of `run` on the first chunk of rows, lowered but not compiled."""
        chunk = self._chunks(state.agents)[0]
        rows = jax.device_put(trees.take(state.rows, self._ids[0]), self._placement)
        with jax.default_matmul_precision(PRECISION):
            return self._programs["run"].lower(state.key, *chunk, rows, state.round, state.round + 1)

    def compile(self, state: State) -> None:
        """Compiles the program of `run`, so that its first call need not."""
        self.lower(state).compile()

    @property
    def compilations(self) -> dict[str, int]:
        """How often each program was compiled."""
        return {name: program._cache_size() for name, program in self._programs.items()}

    def _chunks(self, agents: Any) -> list[tuple[Row, Any]]:
        """The rows of every chunk and their agents, placed on the devices; remembered for the agents that were asked for last."""
        leaves = jax.tree.leaves(agents)
        if len(leaves) == len(self._placed[0]) and all(map(operator.is_, leaves, self._placed[0])):
            return self._placed[1]
        if not self.chunk:
            budget = memory.HOST_BUDGET if self._host else memory.memory_budget(self._devices[0]) * len(self._devices)
            most = self._most or budget // memory.row_bytes(self._problem, agents)
            self.chunk = memory.chunk_size(self._share, most, len(self._devices))
            count = -(-self._share // self.chunk)
            # The last chunk, and the last process, are filled up with copies.
            own = np.minimum(np.arange(count * self.chunk), self._share - 1) + jax.process_index() * self._share
            self._ids = np.minimum(own, self._count - 1).reshape(count, self.chunk)
        rows = [trees.take(self._rows, ids) for ids in self._ids]
        # Chunks of the same seeds, in different settings, share their agents.
        if len(self._devices) == 1:  # on the device: settings repeat the same agents
            there = jax.device_put(agents, self._placement)
            of_seeds = functools.cache(lambda seeds: _take(there, np.array(seeds)))
        else:
            of_seeds = functools.cache(lambda seeds: jax.device_put(trees.take(agents, np.array(seeds)), self._placement))
        self._placed = leaves, [(jax.device_put(row, self._placement), of_seeds(tuple(row.seed.tolist()))) for row in rows]
        return self._placed[1]


@jax.jit
def _take(tree: Any, ids: np.ndarray) -> Any:
    return trees.take(tree, ids)


@functools.partial(jax.jit, static_argnums=1)
def _join(parts: list[Any], rows: int) -> Any:
    return jax.tree.map(lambda *xs: jnp.concatenate(xs)[:rows], *parts)


def _of_all_processes(own: Any, count: int) -> Any:
    """The first `count` rows of all processes, as NumPy arrays; the same in each of them."""
    from jax.experimental import multihost_utils

    return jax.tree.map(lambda x: x[:count], multihost_utils.process_allgather(own, tiled=True))


class Simulator:
    """Runs one algorithm on many seeds at once, in one or in many settings of its hyper-parameters. Made by `simulator`.

    All methods are pure: the same state gives the same result.

    Attributes:
        seeds: how many seeds.
        rows: how many results: seeds, times P if there are settings.
        programs: what runs: `Compiled`, or `fedpg.simulate_plain.Plain`.
        problem: what is learned.
        events: what went wrong in environments that run in Python.
        save_every: seconds after which a training loop should save.
        withheld: whether agents keep their scores to themselves.
    """

    save_every, withheld = 60.0, False

    def __init__(
        self, problem: Problem, algorithm: Algorithm, agents: Agents, rows: Row, seeds: int, participation: Participation, programs: Any
    ) -> None:
        self.problem, self._algorithm, self._agents, self._participation, self._rows = problem, algorithm, agents, participation, rows
        self.seeds, self.rows, self.programs = seeds, len(rows.seed), programs
        drawn = agents.agents if isinstance(agents, Federation) else agents
        one_seed = jax.eval_shape(drawn, jax.random.key(0), 0) if callable(drawn) else drawn
        self._host = problem.environment.host if isinstance(problem.environment, HostEnvironment) else None
        self.events = EventLog(self._host, trees.leading_axis(one_seed))
        self._drawn: tuple[Any, Any] = (None, None)

    def on(self, agents: Agents) -> "Simulator":
        """The same simulator for other agents with arrays of the same shapes: it uses the same programs, and nothing is compiled again."""
        return Simulator(self.problem, self._algorithm, agents, self._rows, self.seeds, self._participation, self.programs)

    def init(self, key: jax.Array) -> State:
        """The state before round 0: agents drawn, params initialised, warm-up done."""
        agents = self._draw(key)
        rows = self.programs.call("start", key, agents, None)
        self._finish(rows, 0, "warm-up")
        return State(key, jnp.zeros((), int), rows, agents)

    def blank(self, key: jax.Array) -> State:
        """A state with the agents and shapes of `init(key)` and nothing run, for restoring a checkpoint."""
        agents = self._draw(key)
        return State(key, jnp.zeros((), int), self.programs.blank(key, agents), agents)

    def compile(self, state: State) -> None:
        """Compiles the rounds for states like this one, such as a blank one. Otherwise the first call of `run` does."""
        self.programs.compile(state)

    def run(self, state: State, rounds: int, *, accumulate: bool = False) -> tuple[State, Info]:
        """Runs `rounds` more rounds on every row.

        Args:
            state: where to start; it stays valid.
            rounds: how many.
            accumulate: add to the counters of the call that made `state` instead of starting from zero.
        """
        require(rounds >= 0, f"rounds must be 0 or more, not {rounds}")
        rows = state.rows
        if not accumulate:
            rows = rows._replace(info=trees.zeros_like(rows.info), refused=jnp.zeros_like(rows.refused))
        # With a host one round at a time, so that its events are known by their round.
        for first, count in [(state.round + i, 1) for i in range(rounds)] if self._host else [(state.round, rounds)]:
            rows = self.programs.call("run", state.key, state.agents, rows, first, first + count)
            self._finish(rows, first, "training")
        return State(state.key, state.round + rounds, rows, state.agents), Info(rows.info, rows.refused, rows.latest)

    def evaluate(self, state: State) -> Scores:
        """The scores of every row, leading axis rows."""
        scores = self.programs.call("evaluate", state.key, state.agents, state.rows, state.round)
        self._finish(scores, state.round, "evaluation")
        return scores

    def params(self, state: State) -> Params:
        """What agents would deploy: leading axis rows, or (rows, N) for personal algorithms."""
        return self.programs.call("params", state.key, state.agents, state.rows)

    def communication(self, state: State) -> Communication:
        """How many numbers one row sends."""
        return measure(self.problem, self._algorithm, trees.take(state.agents, 0), self._participation)

    def _draw(self, key: jax.Array) -> Any:
        """The agents of every seed, prepared for the environment; remembered for the key that was asked for last."""
        if key is self._drawn[0]:
            return self._drawn[1]
        with jax.default_matmul_precision(PRECISION):
            agents = agents_of_seeds(self._agents, key, self.seeds)
            if isinstance(self._agents, Federation) and self._agents.prepare:
                agents = jax.tree.map(np.asarray, self._agents.prepare(agents))
        # Raises early if this participation is not possible here.
        selector(self._participation, self.problem, self._algorithm, trees.take(agents, 0))
        self._drawn = key, agents
        return agents

    def _finish(self, result: Any, round: Any, during: str) -> None:
        """Waits for a result whose environments run in Python, and collects their events."""
        if self._host:
            jax.block_until_ready(result)
            self.events.collect(int(round), during)


def simulator(
    problem: Problem,
    algorithm: Algorithm | Callable[[Any], Algorithm],
    agents: Agents,
    *,
    seeds: int = 1,
    settings: Any = None,
    participation: Participation = EVERYONE,
    chunk: int | None = None,
) -> Simulator:
    """A simulator of `seeds` independent federations.

    A seed's result depends on the key, the seed's number and the configuration only, not on how many seeds run beside it. With P
    settings every seed runs in each of them, with the same keys and the same agents (common random numbers) as in a run of that
    setting alone. All results then have a leading axis of rows = P * seeds, setting-major: row = p * seeds + seed.

    >>> from fedpg.algorithms import pavg
    >>> from fedpg.quadratic import bowls, quadratic
    >>> problem = quadratic(4)
    >>> sim = simulator(problem, pavg(problem, local_lr=0.1), bowls(jax.random.key(0), 5, 0.5), seeds=2)
    >>> state = sim.init(jax.random.key(1))
    >>> state, info = sim.run(state, rounds=3)
    >>> sim.evaluate(state).returns.shape, sim.params(state).shape
    ((2, 5), (2, 4))

    Args:
        problem: what is learned and how it is evaluated.
        algorithm: how; with `settings`, the function setting -> Algorithm.
        agents: a `Federation`, arrays with a leading axis N, or a function (key, seed) -> such arrays.
        seeds: how many seeds, numbered from 0.
        settings: hyper-parameters to compare, a pytree of arrays with one leading axis P. `algorithm` gets that pytree without
            the axis, of traced values: step-sizes and beta may differ between settings, but not what shapes the program (local
            steps, warm-up). Traced values are not checked.
        participation: how many agents take part in a round, and which; everyone by default.
        chunk: the most rows in one call of the compiled program; by default what fits in memory.
    """
    require(seeds >= 1, f"seeds must be at least 1, not {seeds}")
    given = (settings is None) == isinstance(algorithm, Algorithm)
    require(given, "give an Algorithm, or `settings` and a function setting -> Algorithm")
    rows = all_rows(seeds, settings)
    algorithm_of = algorithm if settings is not None else lambda setting: algorithm
    programs = Compiled(row_programs(problem, algorithm_of, participation, AllAtOnce()), problem, rows, chunk)
    # Settings as JAX arrays: NumPy's float64 would pass for a plain number that is known before tracing.
    first = algorithm_of(jax.tree.map(jnp.asarray, trees.take(rows.setting, 0)))
    return Simulator(problem, first, agents, rows, seeds, participation, programs)

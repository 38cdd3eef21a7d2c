"""The simulator: rows x rounds x agents in one jitted program, cut into chunks that fit in memory and spread over all devices.
A row is one seed, or one seed in one setting of the hyper-parameters.

jit( shard_map over devices of vmap over rows of loop over rounds of vmap over agents )
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from fedpg import communication as traffic
from fedpg import memory as chunks
from fedpg import trees
from fedpg.algorithms.base import Algorithm
from fedpg.algorithms.participation import EVERYONE, Participation
from fedpg.envs.host import Host
from fedpg.events import EventLog
from fedpg.keys import Purpose, agent_key
from fedpg.problem import Problem
from fedpg.rounds import Scores, SeedState, no_info
from fedpg.rows import all_rows, stages

AgentsOf = Callable[[jax.Array], Any]
"""key -> the params of all N agents of one seed, leading axis N."""

COMPILER_OPTIONS = {
    # The higher levels double the time to the first result and make these programs no faster.
    "cpu": {"xla_backend_optimization_level": 1},
    # Sums in a fixed order, and the same algorithms at every compilation: without them a resumed run would part from itself.
    "gpu": {"xla_gpu_deterministic_ops": True, "xla_gpu_autotune_level": 0},
}


def make_agents(agents_of: AgentsOf, prepare: Callable[[Any], Any] | None, root: int, seeds: int, device: jax.Device) -> tuple[Any, Any]:
    """The constants of all agents as drawn, and what `prepare` made of them: NumPy arrays with axes (seeds, N, ...)."""

    def of_seed(seed: jax.Array) -> Any:
        return agents_of(agent_key(root, seed, 0, 0, Purpose.AGENTS))

    drawn = jax.jit(jax.vmap(of_seed), compiler_options=COMPILER_OPTIONS.get(device.platform))
    constants = jax.tree.map(np.asarray, drawn(jax.device_put(np.arange(seeds), device)))
    return constants, jax.tree.map(np.asarray, prepare(constants)) if prepare else constants


class Simulator:
    """Runs one algorithm on many seeds at once, in one or in many settings of its hyper-parameters.

    A seed's result depends on (root, seed, configuration) only, not on how many seeds run beside it. With P settings every
    seed runs in each of them, with the same keys and the same agents (common random numbers) as in a run of that setting
    alone. All results then have a leading axis of rows = P * seeds, setting-major: row = p * seeds + seed.

    >>> from fedpg.algorithms import pavg
    >>> from fedpg.quadratic import bowls, quadratic
    >>> problem, local_lrs = quadratic(4), np.array([0.01, 0.1, 1.0])
    >>> algorithm_of = lambda local_lr: pavg(problem, local_lr=local_lr)
    >>> Simulator(problem, algorithm_of, lambda key: bowls(key, 5, 0.5), seeds=4, settings=local_lrs).rows
    12

    Args:
        problem: what is learned and how it is evaluated.
        algorithm: how; with `settings`, the function setting -> Algorithm.
        agents_of: makes the agents of one seed from a key.
        prepare: what is done to all agents on the host, once; see `World`.
        host: steps the environments in Python, if they cannot be traced. The program then runs on one CPU device, where
            calling out of it is cheapest.
        root: the run's `--seed`.
        seeds: how many seeds, numbered from 0.
        chunk: the most rows in one call; by default what fits in memory.
        settings: hyper-parameters to compare, a pytree of arrays with one leading axis P. `algorithm` gets that pytree without
            the axis, of traced values: step-sizes and beta may differ between settings, but not what shapes the program
            (local steps, warm-up), and a value that means nothing is not refused.
        participation: how many agents take part in a round, and which; everyone by default.

    Attributes:
        seeds: how many seeds.
        rows: how many results: seeds, times P if there are settings.
        chunk: rows in one call.
        constants: the agents as drawn, axes (seeds, N, ...).
        traffic: what one row sends.
        log: what went wrong in the environments of a host, by seed and agent.
    """

    save_every, withheld = 60.0, False

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm | Callable[[Any], Algorithm],
        agents_of: AgentsOf,
        *,
        prepare: Callable[[Any], Any] | None = None,
        host: Host | None = None,
        root: int = 0,
        seeds: int = 1,
        chunk: int | None = None,
        settings: Any = None,
        participation: Participation = EVERYONE,
    ) -> None:
        algorithm_of = (lambda setting: algorithm) if settings is None else algorithm
        rows = all_rows(seeds, settings)
        self._host, self.seeds, self.rows = host, seeds, len(rows.seed)
        devices = jax.devices("cpu")[:1] if host else jax.devices()[: min(len(jax.devices()), self.rows)]
        self.constants, agents = make_agents(agents_of, prepare, root, seeds, devices[0])
        budget = chunks.HOST_BUDGET if host else chunks.memory_budget(devices[0]) * len(devices)
        self.chunk = chunks.chunk_size(self.rows, chunk or budget // chunks.row_bytes(problem, agents), len(devices))
        numbers = np.arange(-(-self.rows // self.chunk) * self.chunk).reshape(-1, self.chunk)
        self._numbers = np.minimum(numbers, self.rows - 1)  # the last chunk is filled up with copies
        mesh, by_row, same = Mesh(np.array(devices), ("rows",)), PartitionSpec("rows"), PartitionSpec()
        options = COMPILER_OPTIONS.get(devices[0].platform)

        def program(function: Callable, in_specs: tuple) -> Callable:
            if len(devices) > 1:
                function = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=by_row, check_vma=False)
            return jax.jit(function, compiler_options=options)

        start, advance, evaluate = stages(problem, algorithm_of, root, participation)
        self._programs = {
            "start": program(jax.vmap(start), (by_row, by_row)),
            "advance": program(jax.vmap(advance, (0, 0, 0, None, None)), (by_row, by_row, by_row, same, same)),
            "evaluate": program(jax.vmap(evaluate, (0, 0, 0, None)), (by_row, by_row, by_row, same)),
        }
        # With one device a plain placement: JAX would rename a sharding over it, and compile again for the new name.
        self._placement = NamedSharding(mesh, by_row) if len(devices) > 1 else SingleDeviceSharding(devices[0])
        parts = [trees.take(rows, numbers) for numbers in self._numbers]
        # Chunks of the same seeds, in different settings, share their agents.
        agents_of_seeds = functools.cache(lambda ids: jax.device_put(trees.take(agents, np.array(ids)), self._placement))
        self._parts = [jax.device_put(part, self._placement) for part in parts]
        self._agents = [agents_of_seeds(tuple(part.seed.tolist())) for part in parts]
        first = algorithm_of(trees.take(self._parts[0].setting, 0))
        self.traffic = traffic.measure(problem, first, trees.take(self._agents[0], 0), participation)
        self._states: list[SeedState] = []
        self.log = EventLog(host, jax.tree.leaves(agents)[0].shape[1])

    @property
    def compilations(self) -> dict[str, int]:
        """How often each program was compiled; never more than once."""
        return {name: program._cache_size() for name, program in self._programs.items()}

    def agents(self) -> Any:
        """The agents' params, as NumPy arrays with axes (seeds, N, ...)."""
        return self._gather(self._agents[: -(-self.seeds // self.chunk)], self.seeds)

    def template(self) -> SeedState:
        """The shapes of `state()`, without running anything."""
        one_chunk = jax.eval_shape(self._programs["start"], self._parts[0], self._agents[0])
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.rows, *x.shape[1:]), x.dtype), one_chunk)

    def start(self) -> None:
        """Round 0: initial params, and u_0 where the algorithm has one."""
        started = [self._programs["start"](*given) for given in zip(self._parts, self._agents, strict=True)]
        # Placed where `advance` leaves them: constants that no device owns yet would compile it a second time.
        self._states = jax.block_until_ready(jax.device_put(started, self._placement))
        self.log.collect(0, "warm-up")

    def advance(self, first: int, count: int) -> None:
        """Runs rounds first .. first+count-1 on every row."""
        # With a host one round at a time, so that what goes wrong there is known by its round.
        for begin, rounds in [(r, 1) for r in range(first, first + count)] if self._host else [(first, count)]:
            calls = zip(self._parts, self._states, self._agents, strict=True)
            self._states = [self._programs["advance"](*given, begin, rounds) for given in calls]
            jax.block_until_ready(self._states)
            self.log.collect(begin, "training")

    def evaluate(self, round: int) -> Scores:
        """Scores of every row as NumPy arrays, leading axis rows."""
        calls = zip(self._parts, self._states, self._agents, strict=True)
        found = self._gather([self._programs["evaluate"](*given, round) for given in calls], self.rows)
        self.log.collect(round, "evaluation")
        return found

    def state(self) -> SeedState:
        """The state of every row as NumPy arrays, leading axis rows."""
        return self._gather(self._states, self.rows)

    def load(self, state: SeedState) -> None:
        """Goes on from a state that `state` returned."""
        state = jax.tree.map(np.asarray, state)
        self._states = [jax.device_put(trees.take(state, numbers), self._placement) for numbers in self._numbers]

    def reset_info(self) -> None:
        """Forgets what was counted since the last evaluation."""
        zero = jax.device_put(trees.broadcast(no_info(), self.chunk), self._placement)
        self._states = [state._replace(info=zero, refused=jnp.zeros_like(state.refused)) for state in self._states]

    def _gather(self, parts: list, count: int) -> Any:
        return jax.tree.map(lambda *xs: np.concatenate([np.asarray(x) for x in xs])[:count], *parts)

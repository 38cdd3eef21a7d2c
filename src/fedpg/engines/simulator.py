"""The simulator: seeds x rounds x agents in one jitted program, cut into chunks that fit in memory and spread over all devices.

jit( shard_map over devices of vmap over seeds of loop over rounds of vmap over agents )
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from fedpg import trees
from fedpg.algorithms.base import Algorithm, Exchange
from fedpg.engines import traffic
from fedpg.engines.events import EventLog
from fedpg.engines.keys import Purpose, agent_key
from fedpg.engines.round import Scores, SeedState, no_info, participants, scores, settle, start
from fedpg.envs.host import Host
from fedpg.problem import Problem

AgentsOf = Callable[[jax.Array], Any]
"""key -> the params of all N agents of one seed, leading axis N."""

CPU_BUDGET = 2**23
"""Bytes that one chunk of seeds may work on per CPU core, about its cache: larger chunks measured up to half as fast."""
HOST_BUDGET = 2**32
"""Bytes that one chunk of seeds may work on when environments are stepped in Python: as many lanes as possible at once."""
WORKING_COPIES = 16
"""How many times a sample's own size its rollout and gradients take, roughly."""


COMPILER_OPTIONS = {
    # The higher levels double the time to the first result and make these programs no faster.
    "cpu": {"xla_backend_optimization_level": 1},
    # Sums in a fixed order, and the same algorithms at every compilation: without them a resumed run would part from itself.
    "gpu": {"xla_gpu_deterministic_ops": True, "xla_gpu_autotune_level": 0},
}


def memory_budget(device: jax.Device) -> int:
    """Bytes for one chunk of seeds on `device`; a quarter of a GPU's memory."""
    limit = (device.memory_stats() or {}).get("bytes_limit") if device.platform != "cpu" else None
    return limit // 4 if limit else CPU_BUDGET


def chunk_size(seeds: int, most: int, devices: int) -> int:
    """Seeds per call: a multiple of the devices, at most `most`, such that copies in the last chunk and calls cost least.

    >>> [chunk_size(seeds, 8, 2) for seeds in (1, 3, 10, 12, 1000)]
    [2, 4, 2, 6, 8]
    """
    sizes = range(devices, max(min(most, seeds + devices - 1), devices) + 1, devices)
    return min(sizes, key=lambda size: (-(-seeds // size) * (size + 0.5), -size))  # a call costs about half a seed


def make_agents(agents_of: AgentsOf, prepare: Callable[[Any], Any] | None, root: int, seeds: int, device: jax.Device) -> tuple[Any, Any]:
    """The constants of all agents as drawn, and what `prepare` made of them: NumPy arrays with axes (seeds, N, ...)."""

    def of_seed(seed: jax.Array) -> Any:
        return agents_of(agent_key(root, seed, 0, 0, Purpose.AGENTS))

    drawn = jax.jit(jax.vmap(of_seed), compiler_options=COMPILER_OPTIONS.get(device.platform))
    constants = jax.tree.map(np.asarray, drawn(jax.device_put(np.arange(seeds), device)))
    return constants, jax.tree.map(np.asarray, prepare(constants)) if prepare else constants


class Simulator:
    """Runs one algorithm on many seeds at once.

    A seed's result depends on (root, seed, configuration) only, not on how many seeds run beside it.

    Args:
        problem: what is learned and how it is evaluated.
        algorithm: how.
        agents_of: makes the agents of one seed from a key.
        prepare: what is done to all agents on the host, once; see `World`.
        host: steps the environments in Python, if they cannot be traced. The program then runs on one CPU device, where
            calling out of it is cheapest.
        root: the run's `--seed`.
        seeds: how many seeds, numbered from 0.
        chunk: the most seeds in one call; by default what fits in memory.
    """

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
        chunk: int | None = None,
    ) -> None:
        self._problem, self._algorithm, self._root, self._host = problem, algorithm, root, host
        self.seeds = seeds
        devices = jax.devices("cpu")[:1] if host else jax.devices()[: min(len(jax.devices()), seeds)]
        self.constants, agents = make_agents(agents_of, prepare, root, seeds, devices[0])
        budget = HOST_BUDGET if host else memory_budget(devices[0]) * len(devices)
        self.chunk = chunk_size(seeds, chunk or budget // self._seed_bytes(agents), len(devices))
        ids = np.minimum(np.arange(-(-seeds // self.chunk) * self.chunk), seeds - 1)  # the last chunk is filled up with copies
        mesh, by_seed, same = Mesh(np.array(devices), ("seeds",)), PartitionSpec("seeds"), PartitionSpec()

        options = COMPILER_OPTIONS.get(devices[0].platform)

        def program(function: Callable, in_specs: tuple) -> Callable:
            if len(devices) > 1:
                function = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=by_seed, check_vma=False)
            return jax.jit(function, compiler_options=options)

        self._programs = {
            "start": program(jax.vmap(self._start_seed), (by_seed, by_seed)),
            "advance": program(jax.vmap(self._advance_seed, (0, 0, 0, None, None)), (by_seed, by_seed, by_seed, same, same)),
            "evaluate": program(jax.vmap(self._evaluate_seed, (0, 0, 0, None)), (by_seed, by_seed, by_seed, same)),
        }
        # With one device a plain placement: JAX would rename a sharding over it, and compile again for the new name.
        self._placement = NamedSharding(mesh, by_seed) if len(devices) > 1 else SingleDeviceSharding(devices[0])
        self._ids = [jax.device_put(part, self._placement) for part in ids.reshape(-1, self.chunk)]
        self._agents = [jax.device_put(trees.take(agents, part), self._placement) for part in ids.reshape(-1, self.chunk)]
        self.traffic = traffic.measure(problem, algorithm, trees.take(self._agents[0], 0))
        self._states: list[SeedState] = []
        self.log = EventLog(host, jax.tree.leaves(agents)[0].shape[1])

    def _seed_bytes(self, agents: Any) -> int:
        """About how much memory one seed takes while it runs; `agents` are those of all seeds."""

        def one_sample(key: jax.Array, agents: Any) -> Any:
            problem, agent = self._problem, trees.take(trees.take(agents, 0), 0)
            return problem.sample(key, problem.init_params(key), agent, problem.init_memory())[0]

        sample = jax.eval_shape(one_sample, jax.random.key(0), agents)
        count = jax.tree.leaves(agents)[0].shape[1]
        return WORKING_COPIES * count * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(sample))

    # -- one seed, traced ------------------------------------------------------------------------------------------

    def _round(self, exchange: Exchange, purpose: Purpose, seed: Any, round: Any, state: SeedState, members: Any) -> SeedState:
        count = jax.tree.leaves(members)[0].shape[0]
        keys = jax.vmap(lambda i: agent_key(self._root, seed, round, i, purpose))(jnp.arange(count))
        update = jax.vmap(exchange.local_update, (0, None, 0, 0))
        messages, agents, infos = update(keys, state.server.shared, state.agents, members)
        return settle(state, round, exchange.aggregate, messages, agents, infos)

    def _start_seed(self, seed: jax.Array, agents: Any) -> SeedState:
        members = participants(self._algorithm, agents)
        state = start(self._problem, self._algorithm, self._root, seed, jax.tree.leaves(members)[0].shape[0])
        for number, exchange in enumerate(self._algorithm.warmup):
            state = self._round(exchange, Purpose.WARMUP, seed, number, state, members)
        return state

    def _advance_seed(self, seed: jax.Array, state: SeedState, agents: Any, first: jax.Array, count: jax.Array) -> SeedState:
        members = participants(self._algorithm, agents)
        exchange = Exchange(self._algorithm.local_update, self._algorithm.aggregate)

        def body(i: jax.Array, state: SeedState) -> SeedState:
            return self._round(exchange, Purpose.TRAIN, seed, first + i, state, members)

        return jax.lax.fori_loop(0, count, body, state)

    def _evaluate_seed(self, seed: jax.Array, state: SeedState, agents: Any, round: jax.Array) -> Scores:
        return scores(self._problem, self._algorithm, self._root, seed, round, state, agents)

    # -- all seeds, on the host ------------------------------------------------------------------------------------

    @property
    def compilations(self) -> dict[str, int]:
        """How often each program was compiled; never more than once."""
        return {name: program._cache_size() for name, program in self._programs.items()}

    def agents(self) -> Any:
        """The agents' params, as NumPy arrays with axes (seeds, N, ...)."""
        return self._gather(self._agents)

    def template(self) -> SeedState:
        """The shapes of `state()`, without running anything."""
        one_chunk = jax.eval_shape(self._programs["start"], self._ids[0], self._agents[0])
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.seeds, *x.shape[1:]), x.dtype), one_chunk)

    def start(self) -> None:
        """Round 0: initial params, and u_0 where the algorithm has one."""
        self._states = [self._programs["start"](ids, agents) for ids, agents in zip(self._ids, self._agents, strict=True)]
        jax.block_until_ready(self._states)
        self.log.collect(0, "warm-up")

    def advance(self, first: int, count: int) -> None:
        """Runs rounds first .. first+count-1 on every seed."""
        # With a host one round at a time, so that what goes wrong there is known by its round.
        for begin, rounds in [(r, 1) for r in range(first, first + count)] if self._host else [(first, count)]:
            rows = zip(self._ids, self._states, self._agents, strict=True)
            self._states = [self._programs["advance"](*row, begin, rounds) for row in rows]
            jax.block_until_ready(self._states)
            self.log.collect(begin, "training")

    def evaluate(self, round: int) -> Scores:
        """Scores of every seed as NumPy arrays, leading axis seeds."""
        rows = zip(self._ids, self._states, self._agents, strict=True)
        found = self._gather([self._programs["evaluate"](*row, round) for row in rows])
        self.log.collect(round, "evaluation")
        return found

    def state(self) -> SeedState:
        """The state of every seed as NumPy arrays, leading axis seeds."""
        return self._gather(self._states)

    def load(self, state: SeedState) -> None:
        """Goes on from a state that `state` returned."""
        rows = np.concatenate([np.asarray(ids) for ids in self._ids])
        filled = jax.tree.map(lambda x: np.asarray(x)[rows], state)
        parts = [slice(i * self.chunk, (i + 1) * self.chunk) for i in range(len(self._ids))]
        self._states = [jax.device_put(trees.take(filled, part), self._placement) for part in parts]

    def reset_info(self) -> None:
        """Forgets what was counted since the last evaluation."""
        zero = jax.device_put(trees.broadcast(no_info(), self.chunk), self._placement)
        self._states = [state._replace(info=zero, refused=jnp.zeros_like(state.refused)) for state in self._states]

    def _gather(self, parts: list) -> Any:
        return jax.tree.map(lambda *xs: np.concatenate([np.asarray(x) for x in xs])[: self.seeds], *parts)

"""The state of a run after every round: of a federation, from the checkpoints it writes, and of the simulator from the same state."""

from __future__ import annotations

import contextlib
import re
import time
from collections import defaultdict

import jax
import numpy as np

from fedpg import named_arrays
from fedpg.errors import UserError
from fedpg.runs import checkpoint
from fedpg.runs.config import Config
from fedpg.runs.setup import build, resolve
from helpers.real import PATIENCE, Real

Arrays = dict[str, np.ndarray]
SERVER, AGENTS = "server.", "agents."


def saved(real: Real) -> tuple[int, Arrays]:
    """The rounds done, and the state, of a federation's checkpoint; -1 if there is none yet."""
    path = real.out / "checkpoint" / "state.safetensors"
    with contextlib.suppress(UserError):
        if path.exists():
            arrays, about = checkpoint.read(path)
            return about["round"], part(arrays, "state.")
    return -1, {}


def watched(real: Real) -> dict[int, Arrays]:
    """The state after every round, the agents' from their own disks, taken while the server runs, until it has ended."""
    found, end = {}, time.monotonic() + PATIENCE
    while True:
        over = real.processes["serve"].poll() is not None or time.monotonic() > end
        round, arrays = saved(real)
        if round not in found and round >= 0:
            # An agent keeps the state that the server has on record until the server has a newer one.
            found[round] = arrays | kept_by_agents(real, arrays.pop("agents")[0])
        if over:
            return found
        time.sleep(0.1)


def kept_by_agents(real: Real, numbers: np.ndarray) -> Arrays:
    """The states on the agents' disks, as the simulator has them; nothing for those that still have what they began with."""
    if (numbers < 0).any():
        return {}
    paths = [one for agent, number in enumerate(numbers) for one in (real.folder / f"agent-{agent}" / "states").glob(f"*/{number}.*")]
    assert len(paths) == len(numbers)
    states = [checkpoint.read(path)[0] for path in paths]
    return {f"{AGENTS}{name}": np.stack([state[name] for state in states])[None] for name in states[0]}


def simulated(config: Config, begin: dict[int, Arrays] | None = None) -> dict[int, Arrays]:
    """The simulator's state after every round: from its own of the round before, or from that of `begin`."""
    config, found = resolve(config), {}
    engine = build(config)
    state = engine.init(jax.random.key(config.seed))
    for round in range(config.rounds + 1):
        found[round] = named_arrays.flatten(state.rows)
        if begin:
            state = state._replace(rows=named_arrays.unflatten(state.rows, found[round] | begin[round]))
        if round < config.rounds:
            state, _ = engine.run(state, 1, accumulate=True)
    return found


def part(arrays: Arrays, begin: str) -> Arrays:
    """The arrays whose names begin so, without that."""
    return {name.removeprefix(begin): array for name, array in arrays.items() if name.startswith(begin)}


def error(actual: Arrays, expected: Arrays) -> float:
    """The largest ||a - b|| / ||b|| of a vector: params, or a direction, all layers together. Both have the same arrays."""
    assert actual.keys() == expected.keys()
    sizes, differences = defaultdict(float), defaultdict(float)
    for name, right in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (right.dtype, right.shape), name
        vector = re.split(r"\.inner|\[", name)[0]
        sizes[vector] += float(np.sum(np.square(right, dtype=float)))
        differences[vector] += float(np.sum(np.square(actual[name].astype(float) - right)))
    # A vector of zeros must be one there too.
    return max(float(np.sqrt(differences[name] / sizes[name])) if sizes[name] else float(differences[name] > 0) for name in sizes)

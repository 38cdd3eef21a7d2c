"""Chunk sizes of the simulator: as many rows per call as fit in memory, or in the cache."""

from typing import Any

import jax

from fedpg import trees
from fedpg.problem import Problem

CPU_BUDGET = 2**23
"""Bytes that one chunk of rows may work on per CPU core, about its cache: larger chunks measured up to half as fast."""
HOST_BUDGET = 2**32
"""Bytes that one chunk of rows may work on when environments run in Python: as many lanes as possible at once."""
WORKING_COPIES = 16
"""About how many times a sample's own size its rollout and gradients take."""


def memory_budget(device: jax.Device) -> int:
    """Bytes for one chunk of rows on `device`; a quarter of a GPU's memory."""
    limit = (device.memory_stats() or {}).get("bytes_limit") if device.platform != "cpu" else None
    return limit // 4 if limit else CPU_BUDGET


def chunk_size(rows: int, most: int, devices: int) -> int:
    """Rows per call: a multiple of the devices, at most `most`, that minimises padding in the last chunk plus calls.

    >>> [chunk_size(rows, 8, 2) for rows in (1, 3, 10, 12, 1000)]
    [2, 4, 2, 6, 8]
    """
    sizes = range(devices, max(min(most, rows + devices - 1), devices) + 1, devices)
    return min(sizes, key=lambda size: (-(-rows // size) * (size + 0.5), -size))  # a call costs about half a row


def row_bytes(problem: Problem, agents: Any) -> int:
    """About how much memory one row takes while it runs; `agents` has axes (seeds, N, ...)."""

    def one_sample(key: jax.Array, agents: Any) -> Any:
        agent = trees.take(trees.take(agents, 0), 0)
        return problem.sample(key, problem.init_params(key), agent, problem.init_memory())[0]

    sample = jax.eval_shape(one_sample, jax.random.key(0), agents)
    count = jax.tree.leaves(agents)[0].shape[1]
    return WORKING_COPIES * count * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(sample))

"""Benchmarks: how fast this machine trains, beside named peers that do the same work in the same run.

Each subject is a module with `measure(options) -> rows`. A row is a dict:

    group            what is compared: rows of one group have the same task, algorithm and size
    name             who did it; the rows of fedpg begin with "fedpg"
    rate             how much was done in a second, the median of several measurements that were taken in turns
    unit             of what, such as "environment steps"; "" if there is no rate
    first_seconds    until the first result, compilation included (optional)
    round_seconds    until the metrics after a first round, compilation included (optional)
    peak_bytes       most memory that the process or the device has used so far (optional)
    any other keys   sizes: lanes, agents, horizon, ...
"""

import dataclasses
import importlib
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fedpg.errors import choose

SUBJECTS = {
    "tabular": "finite MDPs: FedSVRPG-M beside scalar loops",
    "cartpole": "CartPole: FedSVRPG-M with its gradients, beside PyTorch and Gymnasium, for 1 to many lanes",
    "mujoco": "MuJoCo: REINFORCE and the actor-critic, beside the bare engine and Stable-Baselines3",
    "scale": "seconds of a run over seeds, agents, rounds and horizon, and their slopes",
    "federation": "a federation of processes: seconds of a round",
    "first-result": "seconds from the command to the first metrics, to those after a round, and of the demo, the first and the second time",
}
"""What can be measured."""
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Options:
    """What to measure."""

    env: str = "halfcheetah"
    """The MuJoCo task."""
    lanes: int = 64
    """Trajectories at once of the MuJoCo task: agents x batch."""
    agents: int = 4
    """N of the MuJoCo task; must divide lanes."""
    horizon: int = 100
    """Steps of a trajectory."""
    algorithm: str = "fedsvrpg-m"
    """The algorithm of the MuJoCo task."""
    repeats: int = 3
    """Every rate is the median of this many, taken in turns."""
    no_peers: bool = False
    """Leave out the peers."""
    most_lanes: int = 16_384
    """The most lanes of the table over lanes."""


def measure(subject: str, options: Options) -> list[Row]:
    """The rows of a subject."""
    module = importlib.import_module(f"fedpg.bench.{choose('subject', subject, SUBJECTS).replace('-', '_')}")
    return [{"subject": subject} | row for row in module.measure(options)]


def with_ratios(rows: list[Row]) -> list[Row]:
    """The rows, those of fedpg with `ratio`, their rates relative to every peer of the group."""
    peers: dict[Any, dict[str, float]] = {}
    for row in rows:
        if not row["name"].startswith("fedpg") and row.get("rate"):
            peers.setdefault((row["subject"], row["group"]), {})[row["name"]] = row["rate"]
    found = []
    for row in rows:
        rates = peers.get((row["subject"], row["group"]), {})
        ours = row["name"].startswith("fedpg") and row.get("rate") and rates
        found.append(row | {"ratio": {name: float(f"{row['rate'] / rate:.4g}") for name, rate in rates.items()}} if ours else row)
    return found


def in_turns(repeats: int, **work: Callable[[], float]) -> dict[str, float]:
    """The median rate of each of some measurements, which are taken in turns: a busy machine then slows all of them."""
    rates: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, once in work.items():
            rates[name].append(once())
    return {name: statistics.median(values) for name, values in rates.items()}


def peak_bytes() -> int:
    """The most memory that was in use so far: of the accelerator, or else of this process."""
    import jax

    used = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return int(used or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))


class Training:
    """A simulation under measurement; `first_seconds` is what building it and its first round took.

    Args:
        config: of the run, resolved.
        rounds: of one measurement; 0: about a tenth of a second of them.
    """

    def __init__(self, config: Any, rounds: int = 0) -> None:
        import jax

        from fedpg.runs.setup import build

        began = time.perf_counter()
        self._sim = build(config)
        self._state, _ = jax.block_until_ready(self._sim.run(self._sim.init(jax.random.key(config.seed)), 1))
        self.first_seconds, self._rounds = round(time.perf_counter() - began, 2), rounds or 1
        while not rounds and self._rounds < 1024:
            began = time.perf_counter()
            self.rate()
            if time.perf_counter() - began > 0.1:
                break
            self._rounds *= 2

    def rate(self) -> float:
        """Environment steps a second of a few rounds from the same state."""
        steps, seconds = self._run(self._rounds)
        return steps / seconds

    def seconds(self, rounds: int = 1) -> float:
        """Seconds of some rounds from that state."""
        return self._run(rounds)[1]

    def _run(self, rounds: int) -> tuple[float, float]:
        import jax

        began = time.perf_counter()
        _, info = jax.block_until_ready(self._sim.run(self._state, rounds))
        seconds = time.perf_counter() - began
        return float(np.asarray(info.local.usage.env_steps).sum(dtype=float)), seconds  # too many for an int32

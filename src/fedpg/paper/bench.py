"""`fedpg bench`: how fast whole training steps are (policy, physics, gradients), as ratios to named peers in the same run."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
import numpy as np

from fedpg.envs.mujoco import TASKS
from fedpg.errors import choose, require
from fedpg.machine import cores
from fedpg.paper import peers
from fedpg.runs.config import Config
from fedpg.runs.setup import build, resolve


@dataclasses.dataclass(frozen=True)
class BenchOptions:
    """Measure whole training steps on a MuJoCo task: fedpg, the bare engine open-loop, a loop over Gymnasium.

    Example: fedpg bench --env halfcheetah --lanes 64 --json
    """

    env: str = "halfcheetah"
    """The task: halfcheetah, walker2d, hopper, swimmer."""
    lanes: int = 64
    """Trajectories at once: agents x batch."""
    agents: int = 4
    """N; must divide lanes."""
    horizon: int = 100
    """Steps of a trajectory. Walker2d and hopper fall early at first: a short horizon keeps all lanes busy."""
    algorithm: str = "fedsvrpg-m"
    """Whose training steps to measure."""
    backend: str = "auto"
    """batch or mjx; auto takes the faster."""
    repeats: int = 3
    """Every measurement is the median of this many, taken in turns."""
    peers: bool = True
    """Measure the peers too."""
    json: bool = False
    """Print one JSON object instead of a table."""


def training_rate(config: Config) -> tuple[Any, float]:
    """A function that measures environment steps a second of whole rounds, and the seconds until the first round was done."""
    began = time.perf_counter()
    engine = build(config)
    engine.start()
    engine.advance(0, 1)
    first = time.perf_counter() - began
    rounds = iter(range(1, 10**9))

    def measure() -> float:
        engine.reset_info()
        began = time.perf_counter()
        engine.advance(next(rounds), 1)
        took = time.perf_counter() - began
        return float(engine.state().info.usage.env_steps.sum()) / took

    return measure, first


def bench(options: BenchOptions) -> dict[str, Any]:
    """What was measured, as plain data; rates are environment steps a second."""
    task = TASKS[choose("env", options.env, TASKS)]
    require(options.lanes % options.agents == 0, f"{options.agents} agents cannot share {options.lanes} lanes evenly")
    config = resolve(
        Config(
            env=options.env, algorithm=options.algorithm, agents=options.agents, batch=options.lanes // options.agents,
            horizon=options.horizon, local_steps=2, rounds=1000, u0="1", backend=options.backend, eval_episodes=1,
        )
    )  # fmt: skip
    threads = cores()
    ours, first = training_rate(config)
    measures = {"fedpg": ours}
    if options.peers:
        steps = max(10, 20_000 // options.lanes)
        measures["mujoco.rollout, open loop"] = lambda: peers.engine_rate(task, options.lanes, steps, threads)
        measures["gymnasium loop, one environment"] = lambda: peers.gymnasium_rate(task, 5000)
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(options.repeats):
        for name, measure in measures.items():
            found[name].append(measure())
    rates = {name: float(np.median(values)) for name, values in found.items()}
    return {
        "env": options.env,
        "algorithm": options.algorithm,
        "backend": config.backend,
        "device": jax.devices()[0].device_kind if config.backend == "mjx" else f"{threads} CPU threads",
        "lanes": options.lanes,
        "steps_per_second": {name: round(rate) for name, rate in rates.items()},
        "fedpg_relative_to": {name: round(rates["fedpg"] / rate, 3) for name, rate in rates.items() if name != "fedpg"},
        "seconds_to_first_round": round(first, 1),
    }

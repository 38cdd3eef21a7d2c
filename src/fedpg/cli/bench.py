"""`fedpg bench`: speed of whole training steps (policy, physics, gradients), as a ratio to the bare engine measured in the same run."""

import dataclasses
import json
import time
from typing import Any

from fedpg.cli.parse import parse
from fedpg.errors import choose, require


@dataclasses.dataclass(frozen=True)
class BenchOptions:
    """Measure whole training steps on a MuJoCo task, and the bare engine open-loop (mujoco.rollout) beside them.

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
    """The algorithm to train with."""
    repeats: int = 3
    """Every measurement is the median of this many, taken in turns."""
    no_peers: bool = False
    """Leave out the engine."""
    json: bool = False
    """Print one JSON object instead of lines."""


def bench(options: BenchOptions) -> dict[str, Any]:
    """What was measured, as plain data; rates are environment steps a second."""
    import jax
    import numpy as np

    from fedpg.envs.mujoco import TASKS
    from fedpg.machine import cores
    from fedpg.runs.config import Config
    from fedpg.runs.setup import build, resolve

    task = TASKS[choose("env", options.env, TASKS)]
    require(options.lanes % options.agents == 0, f"{options.agents} agents cannot share {options.lanes} lanes evenly")
    sizes = {"agents": options.agents, "batch": options.lanes // options.agents, "horizon": options.horizon, "local_steps": 2, "u0": 1}
    config, began = resolve(Config(env=options.env, algorithm=options.algorithm, **sizes)), time.perf_counter()
    sim = build(config)
    state, _ = jax.block_until_ready(sim.run(sim.init(jax.random.key(config.seed)), 1))
    first = time.perf_counter() - began

    ours, peer = [], []
    for _ in range(options.repeats):
        began = time.perf_counter()
        state, info = jax.block_until_ready(sim.run(state, 1))
        ours.append(float(info.local.usage.env_steps.sum()) / (time.perf_counter() - began))
        if not options.no_peers:
            peer.append(engine_rate(task, options.lanes, max(10, 20_000 // options.lanes), cores()))
    rates = {name: float(np.median(values)) for name, values in (("fedpg", ours), ("mujoco.rollout, open loop", peer)) if values}
    return dataclasses.asdict(options) | {
        "device": f"{cores()} CPU threads",
        "steps_per_second": {name: round(rate) for name, rate in rates.items()},
        "fedpg_relative_to": {name: round(rates["fedpg"] / rate, 3) for name, rate in rates.items() if name != "fedpg"},
        "seconds_to_first_round": round(first, 1),
    }


def engine_rate(task: Any, lanes: int, steps: int, threads: int) -> float:
    """Environment steps a second of `mujoco.rollout`: random controls known in advance, no policy, nothing recorded but states."""
    import mujoco
    import numpy as np
    from mujoco import rollout

    from fedpg.envs.mujoco import models

    model = models.build(task.name)
    spec, data = mujoco.mjtState.mjSTATE_FULLPHYSICS.value, mujoco.MjData(model)
    start = np.zeros(mujoco.mj_stateSize(model, spec))
    mujoco.mj_getState(model, data, start, spec)
    control = np.repeat(np.random.default_rng(0).normal(size=(lanes, steps, model.nu)).clip(-1.0, 1.0), task.frame_skip, axis=1)
    workers = [mujoco.MjData(model) for _ in range(threads)]
    began = time.perf_counter()
    rollout.rollout(model, workers, np.tile(start, (lanes, 1)), control)
    return lanes * steps / (time.perf_counter() - began)


def main(argv: list[str]) -> int:
    """Measures and prints; returns the exit code."""
    options = parse(BenchOptions, argv, "fedpg bench")
    found = bench(options)
    if options.json:
        print(json.dumps(found))
        return 0
    print(f"{found['env']}, {found['lanes']} lanes, {found['device']}; environment steps a second:")
    for name, rate in found["steps_per_second"].items():
        ratio = found["fedpg_relative_to"].get(name)
        print(f"{rate:10,}  {name}" + (f"; fedpg trains at {ratio:.2f} times this speed" if ratio else ", whole training steps"))
    print(f"compiling and the first round took {found['seconds_to_first_round']} s")
    return 0

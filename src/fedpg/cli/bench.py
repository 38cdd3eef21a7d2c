"""`fedpg bench`: speed of whole training steps (policy, physics, gradients), as ratios to named peers measured in the same run."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from fedpg.cli.parse import parse
from fedpg.errors import choose, require


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
    config = resolve(
        Config(
            env=options.env, algorithm=options.algorithm, agents=options.agents, batch=options.lanes // options.agents,
            horizon=options.horizon, local_steps=2, rounds=1000, u0="1", backend=options.backend, eval_episodes=1,
        )
    )  # fmt: skip
    began = time.perf_counter()
    sim = build(config)
    state, info = sim.run(sim.init(jax.random.key(config.seed)), 1)
    jax.block_until_ready(info)
    first = time.perf_counter() - began

    def training() -> float:
        nonlocal state
        began = time.perf_counter()
        state, info = sim.run(state, 1)
        steps = float(info.local.usage.env_steps.sum())  # waits for the round
        return steps / (time.perf_counter() - began)

    measures: dict[str, Callable[[], float]] = {"fedpg": training}
    if options.peers:
        steps = max(10, 20_000 // options.lanes)
        measures["mujoco.rollout, open loop"] = lambda: engine_rate(task, options.lanes, steps, cores())
        measures["gymnasium loop, one environment"] = lambda: gymnasium_rate(task, 5000)
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(options.repeats):
        for name, measure in measures.items():
            found[name].append(measure())
    rates = {name: float(np.median(values)) for name, values in found.items()}
    return {
        "env": options.env,
        "algorithm": options.algorithm,
        "backend": config.backend,
        "device": jax.devices()[0].device_kind if config.backend == "mjx" else f"{cores()} CPU threads",
        "lanes": options.lanes,
        "steps_per_second": {name: round(rate) for name, rate in rates.items()},
        "fedpg_relative_to": {name: round(rates["fedpg"] / rate, 3) for name, rate in rates.items() if name != "fedpg"},
        "seconds_to_first_round": round(first, 1),
    }


def engine_rate(task: Any, lanes: int, steps: int, threads: int) -> float:
    """Environment steps a second of `mujoco.rollout`: random controls known in advance, no policy, nothing recorded but states."""
    import mujoco
    import numpy as np
    from mujoco.rollout import Rollout

    from fedpg.envs.mujoco import models

    model = models.build(task.name)
    spec, data = mujoco.mjtState.mjSTATE_FULLPHYSICS.value, mujoco.MjData(model)
    start = np.zeros(mujoco.mj_stateSize(model, spec))
    mujoco.mj_getState(model, data, start, spec)
    control = np.random.default_rng(0).normal(size=(lanes, steps, model.nu)).clip(-1.0, 1.0)
    control = np.repeat(control, task.frame_skip, axis=1)
    with Rollout(nthread=threads) as pool:
        workers = [mujoco.MjData(model) for _ in range(threads)]
        began = time.perf_counter()
        pool.rollout(model, workers, np.tile(start, (lanes, 1)), control)
        return lanes * steps / (time.perf_counter() - began)


def gymnasium_rate(task: Any, steps: int) -> float:
    """Environment steps a second of one Gymnasium environment with a 32x32 tanh policy in NumPy."""
    import gymnasium
    import numpy as np

    from fedpg.envs.mujoco import models

    models.quiet()
    env, random = gymnasium.make(task.gymnasium), np.random.default_rng(0)
    sizes = [env.observation_space.shape[0], 32, 32, env.action_space.shape[0]]
    layers = [0.1 * random.normal(size=(sizes[i], sizes[i + 1])) for i in range(3)]
    observation, _ = env.reset(seed=0)
    began = time.perf_counter()
    for _ in range(steps):
        hidden = np.tanh(np.tanh(observation @ layers[0]) @ layers[1])
        observation, _, terminated, truncated, _ = env.step(hidden @ layers[2] + 0.6 * random.normal(size=sizes[3]))
        if terminated or truncated:
            observation, _ = env.reset()
    rate = steps / (time.perf_counter() - began)
    env.close()
    return rate


def main(argv: list[str]) -> int:
    """The verb. Returns the exit code."""
    options = parse(BenchOptions, argv, "fedpg bench")
    found = bench(options)
    if options.json:
        print(json.dumps(found))
        return 0
    table = Table(title=f"{found['env']}, {found['lanes']} lanes, {found['device']}", title_justify="left")
    for column in ("", "steps a second", "fedpg is"):
        table.add_column(column, justify="right" if column else "left")
    for name, rate in found["steps_per_second"].items():
        label, ratio = f"fedpg, {found['backend']}: whole training steps" if name == "fedpg" else name, found["fedpg_relative_to"].get(name)
        table.add_row(label, f"{rate:,}", f"{ratio:.2f} x" if ratio else "")
    console = Console()
    console.print(table)
    console.print(f"compiling and the first round took {found['seconds_to_first_round']} s", highlight=False)
    return 0

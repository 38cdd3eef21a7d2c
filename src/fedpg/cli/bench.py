"""`fedpg bench`: speed of whole training steps (policy, physics, gradients), as ratios to named peers measured in the same run."""

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
    sizes = {"agents": options.agents, "batch": options.lanes // options.agents, "horizon": options.horizon, "local_steps": 2, "u0": 1}
    asked = Config(env=options.env, algorithm=options.algorithm, rounds=1000, eval_episodes=1, **sizes)
    config, began = resolve(asked), time.perf_counter()
    sim = build(config)
    state, _ = jax.block_until_ready(sim.run(sim.init(jax.random.key(config.seed)), 1))
    first = time.perf_counter() - began

    def training() -> float:
        nonlocal state
        began = time.perf_counter()
        state, info = jax.block_until_ready(sim.run(state, 1))
        return float(info.local.usage.env_steps.sum()) / (time.perf_counter() - began)

    measures: dict[str, Callable[[], float]] = {"fedpg": training}
    if options.peers:
        measures["mujoco.rollout, open loop"] = lambda: engine_rate(task, options.lanes, max(10, 20_000 // options.lanes), cores())
        measures["gymnasium loop, one environment"] = lambda: gymnasium_rate(task, 5000)
    turns = [{name: measure() for name, measure in measures.items()} for _ in range(options.repeats)]
    rates = {name: float(np.median([turn[name] for turn in turns])) for name in measures}
    return {
        "env": options.env, "algorithm": options.algorithm, "lanes": options.lanes,
        "device": f"{cores()} CPU threads",
        "steps_per_second": {name: round(rate) for name, rate in rates.items()},
        "fedpg_relative_to": {name: round(rates["fedpg"] / rate, 3) for name, rate in rates.items() if name != "fedpg"},
        "seconds_to_first_round": round(first, 1),
    }  # fmt: skip


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
    control = np.repeat(np.random.default_rng(0).normal(size=(lanes, steps, model.nu)).clip(-1.0, 1.0), task.frame_skip, axis=1)
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
    return steps / (time.perf_counter() - began)


def main(argv: list[str]) -> int:
    """The verb. Returns the exit code."""
    options = parse(BenchOptions, argv, "fedpg bench")
    found = bench(options)
    if options.json:
        print(json.dumps(found))
        return 0
    table = Table(
        "", "steps a second", "fedpg is", title=f"{found['env']}, {found['lanes']} lanes, {found['device']}", title_justify="left"
    )
    for name, rate in found["steps_per_second"].items():
        ratio = found["fedpg_relative_to"].get(name)
        label = name if ratio else "fedpg: whole training steps"
        table.add_row(label, f"{rate:,}", f"{ratio:.2f} x" if ratio else "")
    first = f"compiling and the first round took {found['seconds_to_first_round']} s"
    Console().print(table, first, sep="\n", highlight=False)
    return 0

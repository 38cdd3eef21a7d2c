"""`fedpg bench`: speed of whole training steps (policy, physics, gradients), as ratios to named peers measured in the same run."""

import dataclasses
import json
import time
from typing import Any

import numpy as np

from fedpg.cli.parse import parse
from fedpg.errors import choose, require

NAMES = ("fedpg", "mujoco.rollout, open loop", "gymnasium loop, one environment")


@dataclasses.dataclass(frozen=True)
class BenchOptions:
    """Measure whole training steps on a MuJoCo task: fedpg, the bare engine open-loop, a loop over Gymnasium."""

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
    json: bool = False
    """Print one JSON object instead of a table."""


def bench(options: BenchOptions) -> dict[str, Any]:
    """What was measured, as plain data; rates are environment steps a second."""
    import jax

    from fedpg.envs.mujoco import TASKS
    from fedpg.machine import cores
    from fedpg.runs.config import Config
    from fedpg.runs.setup import build, resolve

    task = TASKS[choose("env", options.env, TASKS)]
    require(options.lanes % options.agents == 0, f"{options.agents} agents cannot share {options.lanes} lanes evenly")
    sizes = {"agents": options.agents, "batch": options.lanes // options.agents, "horizon": options.horizon, "local_steps": 2, "u0": 1}
    config = resolve(Config(env=options.env, algorithm=options.algorithm, rounds=1000, eval_episodes=1, **sizes))
    sim, began = build(config), time.perf_counter()
    state, _ = jax.block_until_ready(sim.run(sim.init(jax.random.key(config.seed)), 1))
    first, turns = time.perf_counter() - began, []
    for _ in range(options.repeats):
        began = time.perf_counter()
        state, info = jax.block_until_ready(sim.run(state, 1))
        rate = float(info.local.usage.env_steps.sum()) / (time.perf_counter() - began)
        turns.append((rate, *peer_rates(task, options.lanes, cores())))
    rates = dict(zip(NAMES, np.median(turns, axis=0).tolist(), strict=True))
    found = {"env": options.env, "algorithm": options.algorithm, "lanes": options.lanes, "device": f"{cores()} CPU threads"}
    found["steps_per_second"] = {name: round(rate) for name, rate in rates.items()}
    found["fedpg_relative_to"] = {name: round(rates["fedpg"] / rates[name], 3) for name in NAMES[1:]}
    return found | {"seconds_to_first_round": round(first, 1)}


def peer_rates(task: Any, lanes: int, threads: int, gym_steps: int = 5000) -> tuple[float, float]:
    """Steps a second of `mujoco.rollout` without a policy, and of one Gymnasium environment with a 32x32 tanh policy in NumPy."""
    import gymnasium
    import mujoco
    from mujoco.rollout import Rollout

    from fedpg.envs.mujoco import models

    model, spec, random = models.build(task.name), mujoco.mjtState.mjSTATE_FULLPHYSICS.value, np.random.default_rng(0)
    start, steps = np.zeros(mujoco.mj_stateSize(model, spec)), max(10, 20_000 // lanes)
    mujoco.mj_getState(model, mujoco.MjData(model), start, spec)
    control = np.repeat(random.normal(size=(lanes, steps, model.nu)).clip(-1.0, 1.0), task.frame_skip, axis=1)
    with Rollout(nthread=threads) as pool:
        workers, began = [mujoco.MjData(model) for _ in range(threads)], time.perf_counter()
        pool.rollout(model, workers, np.tile(start, (lanes, 1)), control)
        engine = lanes * steps / (time.perf_counter() - began)
    models.quiet()
    env = gymnasium.make(task.gymnasium)
    sizes = [env.observation_space.shape[0], 32, 32, env.action_space.shape[0]]
    layers = [0.1 * random.normal(size=(sizes[i], sizes[i + 1])) for i in range(3)]
    (observation, _), began = env.reset(seed=0), time.perf_counter()
    for _ in range(gym_steps):
        hidden = np.tanh(np.tanh(observation @ layers[0]) @ layers[1])
        observation, _, terminated, truncated, _ = env.step(hidden @ layers[2] + 0.6 * random.normal(size=sizes[3]))
        if terminated or truncated:
            observation, _ = env.reset()
    return engine, gym_steps / (time.perf_counter() - began)


def main(argv: list[str]) -> int:
    """The verb. Returns the exit code."""
    options = parse(BenchOptions, argv, "fedpg bench")
    found = bench(options)
    if options.json:
        print(json.dumps(found))
        return 0
    print(f"{found['env']}, {found['lanes']} lanes, {found['device']}: environment steps a second")
    for name, rate in found["steps_per_second"].items():
        ratio = found["fedpg_relative_to"].get(name)
        print(f"  {name:<34}{rate:>12,}" + (f"   fedpg is {ratio:.2f} x" if ratio else "   whole training steps"))
    print(f"compiling and the first round took {found['seconds_to_first_round']} s")
    return 0

"""MuJoCo tasks: whole rounds of REINFORCE beside the bare engine, and the actor-critic beside Stable-Baselines3's PPO."""

import importlib.util
import time
from typing import Any

import gymnasium
import mujoco
import numpy as np
from mujoco import rollout

from fedpg.bench import Options, Row, Training, in_turns, peak_bytes
from fedpg.envs.mujoco import TASKS, models
from fedpg.errors import choose, require
from fedpg.machine import cores
from fedpg.runs.config import Config
from fedpg.runs.setup import resolve

ENGINE = "mujoco.rollout, open loop"
PPO = "Stable-Baselines3 PPO"
LANES, STEPS, EPOCHS, MINIBATCH = 8, 256, 10, 64
"""Of the actor-critic and of its peer alike."""


def measure(options: Options) -> list[Row]:
    """REINFORCE at `lanes` lanes and the engine in turns; then the actor-critic and its peer in turns."""
    task = TASKS[choose("env", options.env, TASKS)]
    require(options.lanes % options.agents == 0, f"{options.agents} agents cannot share {options.lanes} lanes evenly")
    size = {"env": options.env, "agents": options.agents, "horizon": options.horizon, "batch": options.lanes // options.agents}
    config = resolve(Config(**size, algorithm=options.algorithm, local_steps=2, u0=1))
    ours = Training(config, rounds=1)
    work = {"fedpg": ours.rate}
    if not options.no_peers:
        work[ENGINE] = lambda: engine_rate(task, options.lanes, max(10, 20_000 // options.lanes), cores())
    rows = rows_of(f"{options.env}, {options.algorithm}", in_turns(options.repeats, **work), ours, options.lanes, options.horizon)
    given = {"env": options.env, "agents": options.agents, "batch": LANES // options.agents or 1, "algorithm": "pavg", "rounds": 1000}
    learner = {"epochs": EPOCHS, "minibatch": MINIBATCH, "target_kl": 0.0}
    config = resolve(Config(**given, learner="actor-critic", rollout_steps=STEPS, local_steps=1, learner_option=learner))
    ours = Training(config, rounds=2)
    work = {"fedpg": ours.rate}
    if not options.no_peers and importlib.util.find_spec("stable_baselines3"):
        work[PPO] = ppo_rate(options.env)
    return rows + rows_of(f"{options.env}, actor-critic", in_turns(options.repeats, **work), ours, LANES, config.horizon)


def rows_of(group: str, rates: dict[str, float], ours: Training, lanes: int, horizon: int) -> list[Row]:
    """The rows of some rates at the same number of lanes."""
    size = {"group": group, "unit": "environment steps", "lanes": lanes, "horizon": horizon}
    more = {"first_seconds": ours.first_seconds, "peak_bytes": peak_bytes()}
    return [size | {"name": name, "rate": rate} | (more if name == "fedpg" else {}) for name, rate in rates.items()]


def engine_rate(task: Any, lanes: int, steps: int, threads: int) -> float:
    """Environment steps a second of `mujoco.rollout`: random controls known in advance, no policy, nothing recorded but states."""
    model = models.build(task.name)
    spec, data = mujoco.mjtState.mjSTATE_FULLPHYSICS.value, mujoco.MjData(model)
    start = np.zeros(mujoco.mj_stateSize(model, spec))
    mujoco.mj_getState(model, data, start, spec)
    control = np.repeat(np.random.default_rng(0).normal(size=(lanes, steps, model.nu)).clip(-1.0, 1.0), task.frame_skip, axis=1)
    workers = [mujoco.MjData(model) for _ in range(threads)]
    began = time.perf_counter()
    rollout.rollout(model, workers, np.tile(start, (lanes, 1)), control)
    return lanes * steps / (time.perf_counter() - began)


def ppo_rate(env: str) -> Any:
    """A function that gives training steps a second of PPO on Gymnasium's task of the same name."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    names = {name.lower().partition("-")[0]: name for name in gymnasium.registry if name.endswith("-v5")}
    torch.set_num_threads(cores())
    envs = DummyVecEnv([lambda: gymnasium.make(names[env])] * LANES)
    model = PPO("MlpPolicy", envs, n_steps=STEPS, n_epochs=EPOCHS, batch_size=MINIBATCH, device="cpu")
    model.learn(LANES * STEPS)

    def rate() -> float:
        began = time.perf_counter()
        model.learn(2 * LANES * STEPS)
        return 2 * LANES * STEPS / (time.perf_counter() - began)

    return rate

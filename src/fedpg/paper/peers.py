"""What fedpg's speed on MuJoCo tasks is compared with, in the same run: the bare engine, and a loop over Gymnasium."""

from __future__ import annotations

import time

import numpy as np

from fedpg.envs.mujoco.tasks import Task


def engine_rate(task: Task, lanes: int, steps: int, threads: int) -> float:
    """Environment steps a second of `mujoco.rollout`: random controls known in advance, no policy, nothing recorded but states."""
    import mujoco
    from mujoco.rollout import Rollout

    from fedpg.envs.mujoco import models

    model = models.build(task.name)
    spec = mujoco.mjtState.mjSTATE_FULLPHYSICS.value
    data = mujoco.MjData(model)
    start = np.zeros(mujoco.mj_stateSize(model, spec))
    mujoco.mj_getState(model, data, start, spec)
    control = np.random.default_rng(0).normal(size=(lanes, steps, model.nu)).clip(-1.0, 1.0)
    control = np.repeat(control, task.frame_skip, axis=1)
    with Rollout(nthread=threads) as pool:
        workers = [mujoco.MjData(model) for _ in range(threads)]
        began = time.perf_counter()
        pool.rollout(model, workers, np.tile(start, (lanes, 1)), control)
        return lanes * steps / (time.perf_counter() - began)


def gymnasium_rate(task: Task, steps: int) -> float:
    """Environment steps a second of one Gymnasium environment with a 32x32 tanh policy in NumPy."""
    import gymnasium

    from fedpg.envs.mujoco import models

    models.quiet()
    env = gymnasium.make(task.gymnasium)
    random = np.random.default_rng(0)
    sizes = [env.observation_space.shape[0], 32, 32, env.action_space.shape[0]]
    layers = [0.1 * random.normal(size=(sizes[i], sizes[i + 1])) for i in range(3)]
    observation, _ = env.reset(seed=0)
    began = time.perf_counter()
    for _ in range(steps):
        hidden = np.tanh(np.tanh(observation @ layers[0]) @ layers[1])
        action = hidden @ layers[2] + 0.6 * random.normal(size=sizes[3])
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            observation, _ = env.reset()
    rate = steps / (time.perf_counter() - began)
    env.close()
    return rate

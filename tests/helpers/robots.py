"""MuJoCo federations for tests, and Gymnasium's environments to compare them with."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import mujoco
import numpy as np

from fedpg.envs.base import Federation
from fedpg.envs.host import Session
from fedpg.envs.mujoco import TASKS, MujocoOptions, federation


def ready(name: str, agents: int = 1, heterogeneity: float = 0.0, **options: Any) -> tuple[Federation, Any]:
    """A federation and its agents as its environment takes them, of one seed: leading axis N."""
    made = federation(name, agents, heterogeneity, MujocoOptions(**options))
    knobs = jax.tree.map(lambda x: np.asarray(x)[None], made.agents(jax.random.key(3), 0))
    return made, jax.tree.map(lambda x: x[0], made.prepare(knobs))


def starts(name: str, lanes: int, seed: int = 0, scale: float | None = None) -> np.ndarray:
    """Start offsets of L lanes, (L, nq + nv), as wide as Gymnasium's unless told otherwise."""
    task, rng = TASKS[name], np.random.default_rng(seed)
    return rng.uniform(-1, 1, (lanes, task.nq + task.nv)) * (task.start_range if scale is None else scale)


def session(made: Federation, index: list[int], start: np.ndarray) -> Session:
    return made.environment.host.reset(np.array(index, np.int32), start)


def peer(name: str, model: mujoco.MjModel | None = None) -> Any:
    """Gymnasium's own environment, on another model if one is given."""
    env = gymnasium.make(TASKS[name].gymnasium).unwrapped
    if model is not None:
        env.model, env.data = model, mujoco.MjData(model)
        env.init_qpos, env.init_qvel = env.data.qpos.copy(), env.data.qvel.copy()
    env.reset(seed=0)
    return env


def place(env: Any, start: np.ndarray) -> np.ndarray:
    """Starts Gymnasium's environment where ours starts; returns its observation."""
    env.reset()
    mujoco.mj_resetData(env.model, env.data)
    env.set_state(env.init_qpos + start[: env.model.nq], env.init_qvel + start[env.model.nq :])
    return env._get_obs()


def largest_difference(made: Federation, env: Any, name: str, steps: int = 300) -> tuple[float, int]:
    """Runs both for `steps` steps from the same starts with the same actions, starting anew whenever an episode ends.

    Returns:
        The largest difference of any observation or reward, and how many episodes ended. Ends must coincide.
    """
    task, rng = TASKS[name], np.random.default_rng(1)
    worst, ends, done = 0.0, 0, 0
    for start in starts(name, steps):
        ours = session(made, [0], start[None])
        worst = max(worst, np.abs(ours.observation - place(env, start)).max())
        over = False
        while not over and done < steps:
            action, done = rng.uniform(-1.5, 1.5, task.nu), done + 1  # beyond what the motors can do
            observation, reward, over, truncated, _ = env.step(action)
            after = ours.step(action[None])
            assert after.terminated.tolist() == [over]
            assert after.truncated.tolist() == [truncated] == [False]
            worst = max(worst, np.abs(after.observation - observation).max(), abs(after.reward[0] - reward))
        ours.close()
        ends += over
    return worst, ends

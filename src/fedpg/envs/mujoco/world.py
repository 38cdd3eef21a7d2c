"""A MuJoCo task and its agents as a `World`, on either backend."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.envs.base import World
from fedpg.envs.host import HostEnvironment, Member
from fedpg.envs.mujoco.options import Knobs, MujocoOptions, knobs
from fedpg.envs.mujoco.tasks import TASKS, Task, start
from fedpg.errors import UserError, choose

BACKENDS = ("batch", "mjx")


def world(task_name: str, agents: int, heterogeneity: float, options: MujocoOptions, backend: str = "batch") -> World:
    """N agents of a task.

    Args:
        task_name: one of `TASKS`.
        agents: N.
        heterogeneity: how far what `options.vary` names is spread.
        options: constants of the agents.
        backend: "batch", MuJoCo on the CPU's cores; or "mjx", MuJoCo in JAX, for many lanes on an accelerator.

    Raises:
        UserError: for a value that cannot be, or if MuJoCo is not installed.
    """
    task = TASKS[choose("env", task_name, TASKS)]
    choose("backend", backend, BACKENDS)
    make = _batch if backend == "batch" else _mjx
    try:
        environment, prepare = make(task)
    except ImportError as error:
        raise UserError(f"{task.name} needs MuJoCo: pip install 'fedpg[mujoco]'") from error
    return World(environment, functools.partial(_agents_of, agents, heterogeneity, options, task), prepare)


def _agents_of(agents: int, heterogeneity: float, options: MujocoOptions, task: Task, key: jax.Array) -> Knobs:
    return knobs(key, agents, heterogeneity, options, task)


def _batch(task: Task) -> tuple[HostEnvironment, Any]:
    from fedpg.envs.mujoco.batch import BatchHost
    from fedpg.envs.mujoco.models import asset

    asset(task.xml)  # raises where the models are missing, now rather than in `prepare`
    host = BatchHost(task)

    def prepare(all_knobs: Knobs) -> Member:
        host.furnish(jax.tree.map(lambda x: np.asarray(x).reshape(-1), all_knobs))
        shape = np.shape(all_knobs.mass)
        return Member(jnp.arange(np.prod(shape), dtype=jnp.int32).reshape(shape), jnp.asarray(all_knobs.start_range))

    return HostEnvironment(task.name, task.observation_space, task.action_space, functools.partial(start, task), host), prepare


def _mjx(task: Task) -> tuple[Any, Any]:
    from fedpg.envs.mujoco import mjx

    return mjx.environment(task), functools.partial(mjx.prepare, task)

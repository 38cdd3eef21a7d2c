"""Gymnasium's MuJoCo tasks with agents that differ in start, physics, body, motors or goal.

Two backends share one set of formulas (`tasks`): `batch`, MuJoCo itself on the CPU's cores, and `mjx`, MuJoCo in JAX.
MuJoCo is imported only when a federation is made.
"""

import functools

from fedpg.envs.base import Federation
from fedpg.envs.mujoco.options import Knobs, MujocoOptions, knobs
from fedpg.envs.mujoco.tasks import TASKS, Task
from fedpg.errors import UserError, choose

BACKENDS = ("batch", "mjx")


def federation(name: str, agents: int, heterogeneity: float, options: MujocoOptions, backend: str = "batch") -> Federation:
    """N agents of a task.

    Args:
        name: one of `TASKS`.
        agents: N.
        heterogeneity: how far the constants that `options.vary` names are spread.
        options: constants of the agents.
        backend: "batch", MuJoCo on the CPU's cores; or "mjx", MuJoCo in JAX, for thousands of trajectories on an accelerator.

    Raises:
        UserError: for an invalid value, or if MuJoCo is not installed.
    """
    task = TASKS[choose("env", name, TASKS)]
    choose("backend", backend, BACKENDS)
    try:
        if backend == "batch":
            from fedpg.envs.mujoco import batch as chosen
        else:
            from fedpg.envs.mujoco import mjx as chosen
        environment = chosen.environment(task)
    except ImportError as error:
        raise UserError(f"{name} needs MuJoCo: pip install 'fedpg[mujoco]'") from error
    prepare = functools.partial(chosen.prepare, task, environment)
    return Federation(environment, lambda key, seed: knobs(key, agents, heterogeneity, options, task), prepare)


__all__ = ["BACKENDS", "TASKS", "Knobs", "MujocoOptions", "Task", "federation", "knobs"]

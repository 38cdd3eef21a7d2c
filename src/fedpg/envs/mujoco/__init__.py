"""Gymnasium's MuJoCo tasks with agents that differ in start, physics, body, motors or goal.

MuJoCo is imported only when a federation is made.
"""

import functools

from fedpg.envs.base import Federation
from fedpg.envs.mujoco.options import Knobs, MujocoOptions, knobs
from fedpg.envs.mujoco.tasks import TASKS, Task
from fedpg.errors import UserError, choose


def federation(name: str, agents: int, heterogeneity: float, options: MujocoOptions) -> Federation:
    """N agents of a task.

    Args:
        name: one of `TASKS`.
        agents: N.
        heterogeneity: how far the constants that `options.vary` names are spread.
        options: constants of the agents.

    Raises:
        UserError: for an invalid value, or if MuJoCo is not installed.
    """
    task = TASKS[choose("env", name, TASKS)]
    try:
        from fedpg.envs.mujoco import batch

        environment = batch.environment(task)
    except ImportError as error:
        raise UserError(f"{name} needs MuJoCo: pip install 'fedpg[mujoco]'") from error
    prepare = functools.partial(batch.prepare, environment)
    return Federation(environment, lambda key, seed: knobs(key, agents, heterogeneity, options, task), prepare)


__all__ = ["TASKS", "Knobs", "MujocoOptions", "Task", "federation", "knobs"]

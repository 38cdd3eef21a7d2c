"""Gymnasium's MuJoCo tasks with agents that differ in start, physics, body, motors or goal.

Two backends share one set of formulas (`tasks`): `batch`, MuJoCo itself on the CPU's cores, and `mjx`, MuJoCo in JAX.
MuJoCo is imported only when a world is made.
"""

from fedpg.envs.mujoco.options import PRESETS, SPREAD, Knobs, MujocoOptions, knobs
from fedpg.envs.mujoco.tasks import TASKS, Task
from fedpg.envs.mujoco.world import BACKENDS, world

__all__ = ["BACKENDS", "PRESETS", "SPREAD", "TASKS", "Knobs", "MujocoOptions", "Task", "knobs", "world"]

"""Gymnasium's v5 tasks as numbers and a few formulas.

The formulas follow Gymnasium 1.x and work on the last axis of their arguments, with any leading axes.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.envs.base import Box

Range = tuple[float, float]
ANY: Range = (-math.inf, math.inf)
LARGEST = 1e10
"""MuJoCo's own limit (mjMAXVAL): a simulation whose state goes beyond it has failed."""


class Task(NamedTuple):
    """One of Gymnasium's tasks."""

    name: str  # as in `--env`
    gymnasium: str  # Gymnasium's id
    xml: str  # file of the model among Gymnasium's assets
    nq: int  # number of positions
    nv: int  # number of velocities
    nu: int  # number of actuators
    timestep: float  # seconds of one physics step
    frame_skip: int  # physics steps per environment step
    control_cost: float  # cost of a unit of squared action
    start_range: float  # half-width of the start noise (Gymnasium: reset_noise_scale)
    widest_start: float  # upper bound of a spread start range; beyond it episodes would begin fallen or in the ground
    speed: float  # a reference speed, m/s, around which `target_speed` is spread
    hidden: int = 1  # leading positions that the policy does not see
    largest_velocity: float = math.inf  # observed velocities are clipped to +- this
    normal_start: bool = False  # start velocities are normal with standard deviation start_range, not uniform
    alive_reward: float = 0.0  # reward of a step that ends healthy; 0: the task never ends
    healthy_z: Range = ANY  # range of the second position
    healthy_angle: Range = ANY  # range of the third position
    healthy_state: Range = ANY  # range of every other position and velocity

    @property
    def dt(self) -> float:
        """Seconds per environment step."""
        return self.timestep * self.frame_skip

    @property
    def observation_space(self) -> Box:
        return Box((self.nq - self.hidden + self.nv,))

    @property
    def action_space(self) -> Box:
        return Box((self.nu,), -1.0, 1.0)


_LIST = (
    Task("halfcheetah", "HalfCheetah-v5", "half_cheetah.xml", 9, 9, 6, 0.01, 5, 0.1, 0.1, 0.5, 2.0, normal_start=True),
    Task(
        "walker2d", "Walker2d-v5", "walker2d_v5.xml", 9, 9, 6, 0.002, 4, 1e-3, 5e-3, 0.3, 1.0, largest_velocity=10.0,
        alive_reward=1.0, healthy_z=(0.8, 2.0), healthy_angle=(-1.0, 1.0),
    ),
    Task(
        "hopper", "Hopper-v5", "hopper.xml", 6, 6, 3, 0.002, 4, 1e-3, 5e-3, 0.15, 1.0, largest_velocity=10.0,
        alive_reward=1.0, healthy_z=(0.7, math.inf), healthy_angle=(-0.2, 0.2), healthy_state=(-100.0, 100.0),
    ),
    Task("swimmer", "Swimmer-v5", "swimmer.xml", 5, 5, 2, 0.01, 4, 1e-4, 0.1, 1.5, 0.1, hidden=2),
)  # fmt: skip
TASKS: dict[str, Task] = {task.name: task for task in _LIST}


def start(task: Task, key: jax.Array, start_range: jax.Array) -> jax.Array:
    """The noise on the start of the model, (nq + nv,): positions uniform in +-start_range, velocities uniform or normal."""
    position_key, velocity_key = jax.random.split(key)
    positions = jax.random.uniform(position_key, (task.nq,), minval=-1.0, maxval=1.0)
    if task.normal_start:
        velocities = jax.random.normal(velocity_key, (task.nv,))
    else:
        velocities = jax.random.uniform(velocity_key, (task.nv,), minval=-1.0, maxval=1.0)
    return start_range * jnp.concatenate([positions, velocities])


def observation(task: Task, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    """The observation of the policy, (..., nq - hidden + nv)."""
    if task.largest_velocity < math.inf:  # not np.clip, which takes five times as long
        qvel = np.minimum(np.maximum(qvel, -task.largest_velocity), task.largest_velocity)
    return np.concatenate([qpos[..., task.hidden :], qvel], -1)


def healthy(task: Task, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    """Whether the episode goes on, (...)."""

    def inside(values: np.ndarray, allowed: Range) -> np.ndarray:
        return (allowed[0] < values) & (values < allowed[1])

    if task.alive_reward == 0.0:
        return np.ones(qpos.shape[:-1], bool)
    fine = inside(qpos[..., 1], task.healthy_z) & inside(qpos[..., 2], task.healthy_angle)
    if task.healthy_state != ANY:
        fine = fine & inside(np.concatenate([qpos[..., 2:], qvel], -1), task.healthy_state).all(-1)
    return fine


def reward(
    task: Task, x_velocity: np.ndarray, action: np.ndarray, fine: np.ndarray, target_speed: np.ndarray | None, direction: np.ndarray
) -> np.ndarray:
    """Forward term + reward for being alive - control cost, (...).

    The forward term is v = direction * x_velocity, or -|v - target_speed| where the target is finite (None: nowhere). The cost
    is that of the action as given, although MuJoCo clamps what the motors do.
    """
    forward = direction * x_velocity
    if target_speed is not None:
        forward = np.where(np.isinf(target_speed), forward, -np.abs(forward - target_speed))
    return forward + task.alive_reward * fine - task.control_cost * np.square(action).sum(-1)


def sound(qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    """Whether a simulation's state is finite and within MuJoCo's limits, (...)."""
    return (np.abs(qpos) < LARGEST).all(-1) & (np.abs(qvel) < LARGEST).all(-1)

"""Pictures of MuJoCo robots, drawn off-screen."""

import os
from collections.abc import Callable

import mujoco
import numpy as np

from fedpg.envs.mujoco import models
from fedpg.envs.mujoco.options import Knobs
from fedpg.envs.mujoco.tasks import Task
from fedpg.errors import UserError

ADVICE = "set MUJOCO_GL=egl (or osmesa) before Python starts, and install its library (Debian: libegl1 libgl1-mesa-dri)"


def drawer(task: Task, knobs: Knobs, width: int, height: int) -> Callable[[np.ndarray], list[np.ndarray]]:
    """A function that draws N robots at positions (N, nq), as (H, W, 3) pictures; `knobs` has one constant per robot, (N,).

    Raises:
        UserError: if nothing can be drawn here.
    """
    factors = np.stack([np.asarray(getattr(knobs, name)) for name in models.FACTORS], 1).astype(float).tolist()
    built = [models.build(task.name, *own, textures=True) for own in factors]
    try:
        renderers = [mujoco.Renderer(model, height, width) for model in built]
    except Exception as error:  # a missing library can raise anything
        raise UserError(f"MuJoCo cannot draw here (MUJOCO_GL={os.environ.get('MUJOCO_GL', '')}): {ADVICE}") from error
    data = [mujoco.MjData(model) for model in built]
    camera = "track" if built[0].ncam else -1

    def draw(qpos: np.ndarray) -> list[np.ndarray]:
        pictures = []
        for model, one, renderer, position in zip(built, data, renderers, qpos, strict=True):
            one.qpos[:] = position
            mujoco.mj_forward(model, one)
            renderer.update_scene(one, camera)
            pictures.append(renderer.render().copy())
        return pictures

    return draw

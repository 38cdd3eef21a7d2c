"""L simulations of MuJoCo, stepped together on the CPU's cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from fedpg.envs.mujoco.tasks import LARGEST, sound
from fedpg.machine import cores

NO_STAGE = int(mujoco.mjtStage.mjSTAGE_NONE)


class Failure(NamedTuple):
    """Simulations that MuJoCo cannot go on with.

    Attributes:
        lanes: which, (L,).
        errors: what MuJoCo said of them, where it raised an error, by lane.
    """

    lanes: np.ndarray
    errors: dict[int, str]


class Fleet:
    """A `Batch` of L simulations with views of what is read and written at every step.

    Attributes:
        qpos: positions, (L, nq).
        qvel: velocities, (L, nv).
        index: whose model each lane runs on, (L,); None: all on the model the fleet was made with.
    """

    def __init__(self, model: mujoco.MjModel, lanes: int) -> None:
        self._batch = Batch(model, lanes, min(lanes, cores()))
        self.qpos, self.qvel, self._ctrl = (self._batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self._state = self._batch.state[:, : 1 + model.nq + model.nv]  # time, positions, velocities
        self._warnings = self._batch.warning[:, :, 1]  # how often MuJoCo warned of each kind of trouble since the reset
        self.index: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.qpos)

    def use(self, models: list[mujoco.MjModel], index: np.ndarray) -> None:
        """Runs lane l on models[index[l]] from now on."""
        if not np.array_equal(self.index, index):
            self._batch.set_models([models[i] for i in index])
            self.index = index

    def start(self, offset: np.ndarray) -> Failure | None:
        """Puts every lane at its model's own start + offset, (L, nq + nv)."""
        nq = self.qpos.shape[1]
        self._batch.reset(stage=NO_STAGE)
        self.qpos += offset[:, :nq]
        self.qvel += offset[:, nq:]
        return self._failures(self._batch.forward)

    def step(self, ctrl: np.ndarray, ids: np.ndarray | None, substeps: int) -> Failure | None:
        """Steps lanes `ids` (None: all); MuJoCo clamps ctrl, (L, nu), to what the motors can do."""
        self._ctrl[:] = ctrl
        return self._failures(lambda: self._batch.step(ids, substeps))

    def _failures(self, call: Callable[[], None]) -> Failure | None:
        """Makes a call on the batch; None if all went well, which is found out cheaply."""
        errors = {}
        try:
            call()
        except SimulationError as error:
            errors = {int(lane): self._batch.error(int(lane)) for lane in error.ids}
        # MuJoCo looks at a state only when it steps from it, so the newest is looked at here; NaN also fails this test.
        if not errors and np.abs(self._state).max() < LARGEST and not self._warnings.any():
            return None
        lanes = self._warnings.any(1) | ~sound(np, self.qpos, self.qvel)
        lanes[list(errors)] = True
        return Failure(lanes, errors)

    def warning(self, lane: int) -> str:
        """What MuJoCo warned about in a lane, one line."""
        kinds = np.flatnonzero(self._warnings[lane])
        if len(kinds) == 0:
            return "positions or velocities beyond what MuJoCo can simulate"
        return mujoco.mju_warningText(int(kinds[0]), int(self._batch.warning[lane, kinds[0], 0])).strip()

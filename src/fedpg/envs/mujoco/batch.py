"""MuJoCo itself on the CPU's cores: one call steps all lanes of a session.

Numbers are float64 and equal Gymnasium's, step by step. Lanes that have ended are not stepped.
"""

import functools
import threading
from collections import defaultdict
from collections.abc import Callable

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from fedpg.envs.host import Event, HostEnvironment, Member, Stepped
from fedpg.envs.mujoco import models
from fedpg.envs.mujoco.options import Knobs
from fedpg.envs.mujoco.tasks import LARGEST, Task, healthy, observation, reward, sound, start
from fedpg.machine import cores

NO_STAGE = int(mujoco.mjtStage.mjSTAGE_NONE)


def environment(task: Task) -> HostEnvironment:
    """The task on the CPU. Its agents are `Member`s, which `prepare` makes from their constants."""
    models.asset(task.xml)  # raises where the models are missing, now rather than in `prepare`
    return HostEnvironment(task.name, task.observation_space, task.action_space, functools.partial(start, task), BatchHost(task))


def prepare(environment: HostEnvironment, knobs: Knobs) -> Member:
    """The agents of constants with axes (seeds, N): builds every model."""
    shape = np.shape(knobs.mass)
    environment.host.build(jax.tree.map(lambda x: np.asarray(x).reshape(-1), knobs))
    return Member(jnp.arange(np.prod(shape), dtype=jnp.int32).reshape(shape), jnp.asarray(knobs.start_range))


class Simulations:
    """L simulations that are stepped together.

    Attributes:
        qpos: positions, (L, nq).
        qvel: velocities, (L, nv).
    """

    def __init__(self, model: mujoco.MjModel, lanes: int) -> None:
        self._batch = Batch(model, lanes, min(lanes, cores()))
        self.qpos, self.qvel, self._ctrl = (self._batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self._state = self._batch.state[:, : 1 + model.nq + model.nv]  # time, positions, velocities
        self._warnings = self._batch.warning[:, :, 1]  # how often MuJoCo warned of each kind of trouble since the reset
        self._errors: dict[int, str] = {}
        self._index: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.qpos)

    def use(self, models: list[mujoco.MjModel], index: np.ndarray) -> None:
        """Runs lane l on models[index[l]] from now on."""
        if not np.array_equal(self._index, index):
            self._batch.set_models([models[i] for i in index])
            self._index = index

    def start(self, offset: np.ndarray) -> np.ndarray | None:
        """Puts every lane at the start of its model + offset, (L, nq + nv); returns the lanes that failed, like `step`."""
        nq = self.qpos.shape[1]
        self._batch.reset(stage=NO_STAGE)
        self.qpos += offset[:, :nq]
        self.qvel += offset[:, nq:]
        return self._failed(self._batch.forward)

    def start_some(self, lanes: np.ndarray, offset: np.ndarray) -> np.ndarray | None:
        """Like `start`, for the lanes `lanes` only; offset has a row for each of them."""
        nq = self.qpos.shape[1]
        self._batch.reset(lanes, stage=NO_STAGE)
        self.qpos[lanes] += offset[:, :nq]
        self.qvel[lanes] += offset[:, nq:]
        return self._failed(lambda: self._batch.forward(lanes))

    @property
    def state(self) -> np.ndarray:
        """All that the next step of every lane depends on, (L, nstate); it may be written."""
        return self._batch.state

    def step(self, ctrl: np.ndarray, ids: np.ndarray | None, substeps: int) -> np.ndarray | None:
        """Steps lanes `ids` (None: all); MuJoCo clamps ctrl, (L, nu), to the range of the motors.

        Returns:
            Which lanes MuJoCo cannot continue, (L,); None if there are none.
        """
        self._ctrl[:] = ctrl
        return self._failed(lambda: self._batch.step(ids, substeps))

    def _failed(self, call: Callable[[], None]) -> np.ndarray | None:
        self._errors = {}
        try:
            call()
        except SimulationError as error:
            self._errors = {int(lane): self._batch.error(int(lane)) for lane in error.ids}
        # MuJoCo checks a state only when it steps from it, so the newest is checked here; NaN fails the comparison too.
        if not self._errors and np.abs(self._state).max() < LARGEST and not self._warnings.any():
            return None
        lanes = self._warnings.any(1) | ~sound(self.qpos, self.qvel)
        lanes[list(self._errors)] = True
        return lanes

    def reason(self, lane: int) -> str:
        """Why a lane failed, one line."""
        if lane in self._errors:
            return self._errors[lane]
        kinds = np.flatnonzero(self._warnings[lane])
        if len(kinds) == 0:
            return "positions or velocities beyond what MuJoCo can simulate"
        return mujoco.mju_warningText(int(kinds[0]), int(self._batch.warning[lane, kinds[0], 0])).strip()


class BatchHost:
    """Steps the agents of one task. See `fedpg.envs.host.Host`."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.events: list[Event] = []
        self._models: list[mujoco.MjModel] = []
        self.knobs = Knobs()
        self._one_model = True
        # Making simulations costs as much as resetting them: they are kept, by number of lanes, for the next session.
        self._idle: defaultdict[int, list[Simulations]] = defaultdict(list)
        self._lock = threading.Lock()

    def build(self, knobs: Knobs) -> None:
        """Builds the models of all environments; every leaf of `knobs` is (environments,)."""
        self._models = models.build_all(self.task, knobs)
        self._one_model = all(model is self._models[0] for model in self._models)
        self.knobs = jax.tree.map(lambda x: np.asarray(x, np.float64), knobs)
        self._idle.clear()

    def reset(self, index: np.ndarray, start: np.ndarray) -> "BatchSession":
        """Starts lanes; start[l], (nq + nv,), is added to the start of the model."""
        index = np.array(index)
        with self._lock:
            idle = self._idle[len(index)]
            simulations = idle.pop() if idle else Simulations(self._models[0], len(index))
        if not self._one_model:
            simulations.use(self._models, index)
        return BatchSession(self, simulations, index, np.asarray(start, np.float64), self.knobs)

    def words(self, horizon: int) -> int:
        """A state is MuJoCo's own, float64."""
        return 2 * Simulations(self._models[0] if self._models else models.build(self.task.name), 1).state.shape[1]

    def resume(self, index: np.ndarray, start: np.ndarray, state: np.ndarray, new: np.ndarray) -> "BatchSession":
        """Goes on from states that `BatchSession.save` gave, or starts lanes that are new."""
        session = self.reset(index, start)
        session.restore(np.flatnonzero(~new), state)
        return session

    def give_back(self, simulations: Simulations) -> None:
        """Keeps simulations for the next session."""
        with self._lock:
            self._idle[len(simulations)].append(simulations)


class BatchSession:
    """L lanes under way. See `fedpg.envs.host.Session`."""

    def __init__(self, host: BatchHost, simulations: Simulations, index: np.ndarray, start: np.ndarray, knobs: Knobs) -> None:
        self._host, self._task, self._simulations, self._index = host, host.task, simulations, index
        offset, target = knobs.action_offset[index], knobs.target_speed[index]
        self._offset = offset[:, None] if offset.any() else None
        self._target = None if np.isinf(target).all() else target
        self._direction = knobs.direction[index]
        self._none = np.zeros(len(index), bool)
        self._none.flags.writeable = False  # it is returned
        self._alive, self._ids = ~self._none, None  # ids: the lanes to step; None: all
        self._reported: set[int] = set()
        # A lane that cannot start stays at rest until its first step, and ends there.
        self._doomed = self._report(simulations.start(start))
        self.observation = observation(self._task, simulations.qpos, simulations.qvel)

    @property
    def positions(self) -> np.ndarray:
        """Of every lane, (L, nq), for a picture."""
        return self._simulations.qpos

    def step(self, action: np.ndarray) -> Stepped:
        """One step of every lane that is alive; action (L, nu). Never raises for a failing simulation."""
        task, simulations = self._task, self._simulations
        action, lost = self._allowed(action)
        before = simulations.qpos[:, 0].copy()
        failed = simulations.step(action, self._ids, task.frame_skip)
        qpos, qvel = simulations.qpos, simulations.qvel
        seen, fine = observation(task, qpos, qvel), healthy(task, qpos, qvel)
        paid = reward(task, (qpos[:, 0] - before) / task.dt, action, fine, self._target, self._direction)
        if failed is not None:
            lost = lost | self._report(failed)
        if self._ids is None and lost is self._none and fine.all():  # the usual case, kept short
            self.observation = seen
            return Stepped(seen, paid, self._none, self._none)
        return self._end(seen, paid, fine, lost)

    def restart(self, lanes: np.ndarray, start: np.ndarray) -> None:
        """Starts some lanes again."""
        self._alive = self._alive.copy()
        self._alive[lanes] = True
        self._doomed = self._doomed | self._report(self._simulations.start_some(lanes.astype(np.int32), np.asarray(start, np.float64)))
        self._move(lanes)

    def save(self) -> np.ndarray:
        """MuJoCo's states as words of 32 bits."""
        return np.ascontiguousarray(self._simulations.state).view(np.uint32)

    def restore(self, lanes: np.ndarray, state: np.ndarray) -> None:
        """Puts some lanes into the states, (L, W), that `save` gave."""
        self._simulations.state[lanes] = np.ascontiguousarray(state).view(np.float64)[lanes]
        self._move(lanes)

    def _move(self, lanes: np.ndarray) -> None:
        """Reads the observations of lanes that are somewhere else now."""
        seen = self.observation.copy()
        seen[lanes] = observation(self._task, self._simulations.qpos, self._simulations.qvel)[lanes]
        self.observation = seen
        self._ids = None if self._alive.all() else np.flatnonzero(self._alive).astype(np.int32)

    def _allowed(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The action with its offset, and the lanes that end with this step in any case.

        An action that is not finite comes from an agent that failed earlier in the round: it is not reported again.
        """
        action = np.asarray(action, np.float64)
        if self._offset is not None:
            action = action + self._offset
        lost, self._doomed = self._doomed, self._none
        if not np.isfinite(action.sum()):
            finite = np.isfinite(action).all(1)
            action, lost = np.where(finite[:, None], action, 0.0), lost | (self._alive & ~finite)
        return action, lost

    def _report(self, failed: np.ndarray | None) -> np.ndarray:
        """The living lanes that failed, (L,), with an event for each environment that had none."""
        if failed is None:
            return self._none
        failed = failed & self._alive
        for lane in np.flatnonzero(failed).tolist():
            index = int(self._index[lane])
            if index not in self._reported:
                self._reported.add(index)
                self._host.events.append(Event(index, f"{self._task.name} became unstable: {self._simulations.reason(lane)}"))
        return failed

    def _end(self, seen: np.ndarray, paid: np.ndarray, fine: np.ndarray, lost: np.ndarray) -> Stepped:
        """A step after which lanes have ended: earlier ones stand still, those that failed (`lost`) end with reward NaN."""
        still = ~self._alive | lost
        seen[still] = self.observation[still]
        paid[~self._alive], paid[lost] = 0.0, np.nan
        ended = still | ~fine
        self.observation, self._alive = seen, ~ended
        self._ids = np.flatnonzero(self._alive).astype(np.int32)
        return Stepped(seen, paid, ended, self._none)

    def close(self) -> None:
        """Gives the simulations back; the session must not be stepped after."""
        self._host.give_back(self._simulations)

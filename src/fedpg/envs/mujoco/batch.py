"""MuJoCo itself, on the CPU's cores: every lane of a session is stepped by one call.

Numbers are float64 and equal Gymnasium's, step by step. Lanes that have ended are not stepped.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from fedpg.envs.host import Event, Stepped
from fedpg.envs.mujoco import models
from fedpg.envs.mujoco.fleet import Failure, Fleet
from fedpg.envs.mujoco.options import Knobs
from fedpg.envs.mujoco.tasks import Task, healthy, observation, reward


class Constants(NamedTuple):
    """What rewards and actions need of each environment; (environments,) in the host, (L,) in a session."""

    action_offset: np.ndarray
    target_speed: np.ndarray
    direction: np.ndarray


class BatchHost:
    """Steps the agents of one task. See `fedpg.envs.host.Host`."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.events: list[Event] = []
        self._models: list = []
        self._constants = Constants(*np.zeros((3, 0)))
        self._one_model = True
        # Making a fleet costs as much as resetting it: fleets wait here, by size, for the next session.
        self._idle: defaultdict[int, list[Fleet]] = defaultdict(list)
        self._lock = threading.Lock()

    def furnish(self, knobs: Knobs) -> None:
        """Builds the models of all environments; every leaf of `knobs` has their number as its only axis."""
        self._models = models.build_all(self.task, knobs)
        self._one_model = all(model is self._models[0] for model in self._models)
        self._constants = Constants(*(np.asarray(getattr(knobs, name), np.float64) for name in Constants._fields))
        self._idle.clear()

    def reset(self, index: np.ndarray, start: np.ndarray) -> BatchSession:
        """Starts lanes; start[l], (nq + nv,), is added to the model's own start."""
        index = np.array(index)
        with self._lock:
            idle = self._idle[len(index)]
            fleet = idle.pop() if idle else Fleet(self._models[0], len(index))
        if not self._one_model:
            fleet.use(self._models, index)
        return BatchSession(self, fleet, index, np.asarray(start, np.float64), Constants(*(x[index] for x in self._constants)))

    def give_back(self, fleet: Fleet) -> None:
        """Keeps a fleet for the next session."""
        with self._lock:
            self._idle[len(fleet)].append(fleet)


class BatchSession:
    """L lanes under way. See `fedpg.envs.host.Session`."""

    def __init__(self, host: BatchHost, fleet: Fleet, index: np.ndarray, start: np.ndarray, constants: Constants) -> None:
        self._host, self._task, self._fleet, self._index = host, host.task, fleet, index
        self._offset = constants.action_offset[:, None] if constants.action_offset.any() else None
        self._target = None if np.isinf(constants.target_speed).all() else constants.target_speed
        self._direction = constants.direction
        self._nobody = np.zeros(len(index), bool)
        self._nobody.flags.writeable = False  # it is handed out
        self._alive, self._ids = ~self._nobody, None  # ids: the lanes to step; None: all
        self._told: set[int] = set()
        # A lane that cannot start where it should stands at rest until its first step, and ends there.
        self._doomed = self._failed(fleet.start(start))
        self.observation = observation(np, self._task, fleet.qpos, fleet.qvel)

    def step(self, action: np.ndarray) -> Stepped:
        """One step of every lane that is alive; action (L, nu). Never raises for what a simulation does."""
        task, fleet = self._task, self._fleet
        action, lost = self._allowed(action)
        before = fleet.qpos[:, 0].copy()
        failure = fleet.step(action, self._ids, task.frame_skip)
        seen, fine = observation(np, task, fleet.qpos, fleet.qvel), healthy(np, task, fleet.qpos, fleet.qvel)
        paid = reward(np, task, (fleet.qpos[:, 0] - before) / task.dt, action, fine, self._target, self._direction)
        if failure is not None:
            lost = lost | self._failed(failure)
        if self._ids is None and lost is self._nobody and fine.all():  # the usual case, kept short
            self.observation = seen
            return Stepped(seen, paid, self._nobody, self._nobody)
        return self._end(seen, paid, fine, lost)

    def _allowed(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The action with its offset, and the lanes that end with this step whatever it does.

        An action that is not finite comes from an agent that failed earlier in the round: nothing more is said of it.
        """
        action = np.asarray(action, np.float64)
        if self._offset is not None:
            action = action + self._offset
        lost, self._doomed = self._doomed, self._nobody
        if not np.isfinite(action.sum()):
            finite = np.isfinite(action).all(1)
            action, lost = np.where(finite[:, None], action, 0.0), lost | (self._alive & ~finite)
        return action, lost

    def _failed(self, failure: Failure | None) -> np.ndarray:
        """The living lanes that failed, (L,). Notes why, once per environment."""
        if failure is None:
            return self._nobody
        failed = failure.lanes & self._alive
        for lane in np.flatnonzero(failed).tolist():
            index = int(self._index[lane])
            if index not in self._told:
                self._told.add(index)
                why = failure.errors.get(lane) or self._fleet.warning(lane)
                self._host.events.append(Event(index, f"{self._task.name} became unstable: {why}"))
        return failed

    def _end(self, seen: np.ndarray, paid: np.ndarray, fine: np.ndarray, lost: np.ndarray) -> Stepped:
        """A step in which lanes have ended: those of before stand still, those that failed (`lost`) end with reward NaN."""
        still = ~self._alive | lost
        seen[still] = self.observation[still]
        paid[~self._alive], paid[lost] = 0.0, np.nan
        ended = still | ~fine
        self.observation, self._alive = seen, ~ended
        self._ids = np.flatnonzero(self._alive).astype(np.int32)
        return Stepped(seen, paid, ended, self._nobody)

    def close(self) -> None:
        """Gives the simulations back; the session must not be stepped after."""
        self._host.give_back(self._fleet)

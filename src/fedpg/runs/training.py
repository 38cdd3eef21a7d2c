"""The host loop: progress, evaluation, metrics, checkpoints, Ctrl-C and resume."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpg import named_arrays as wire
from fedpg.rounds import HEALTHY
from fedpg.flower.tasks import one_line
from fedpg.errors import UserError, require
from fedpg.runs import checkpoint
from fedpg.runs import manifest
from fedpg.runs import config as configs
from fedpg.runs.config import Config, flag
from fedpg.runs.folder import RunFolder, write_atomically
from fedpg.runs.points import TRACKING
from fedpg.runs.sending import Trackers
from fedpg.runs.progress import Progress, Silent
from fedpg.runs.metrics import Costs, make_row, privacy_spent
from fedpg.runs.setup import Engine, build, resolve

PACE = 1.0
"""Seconds that one call into the engine should take, so that the bar moves and Ctrl-C is heard."""


class Run(NamedTuple):
    """A finished or interrupted run.

    Attributes:
        folder: where it is.
        config: complete.
        round: rounds done; fewer than `config.rounds` if Ctrl-C stopped it.
        rows: what metrics.jsonl holds.
    """

    folder: Path
    config: Config
    round: int
    rows: list[dict[str, Any]]


def train(
    config: Config,
    out: Path | str,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    make_engine: Callable[[Config], Engine] = build,
) -> Run:
    """Trains one policy for all agents of `config` and writes a run folder.

    Args:
        config: what to run; with `resume` it must be the folder's own, but for `rounds`, which may be larger, and `track`.
        out: the run folder; must be empty or absent unless `resume`.
        resume: go on from the folder's checkpoint, bit for bit.
        progress: where to report; silent by default.
        make_engine: what runs a complete configuration.
    """
    folder = RunFolder(Path(out))
    asked, config = config, resolve(config)
    if resume:
        folder.require_run()
        stored = resolve(Config(**configs.read(folder.config) | {"track": ()}))  # its trackers need not be installed any more
        # u_0 follows from the number of rounds the run began with, unless it was asked for
        config = check_same(config if asked.u0 != "auto" else dataclasses.replace(config, u0=stored.u0), stored)
    else:
        folder.require_empty()
    # GPUs round matrix products to TF32 unless told otherwise; results must not depend on that.
    with jax.default_matmul_precision("highest"):
        loop = _Loop(make_engine(config), config, folder, progress or Silent())
        with folder.lock():
            return loop.run(resume)


def check_same(wanted: Config, stored: Config) -> Config:
    """The stored configuration with the wanted rounds and trackers; refuses any other difference."""
    for field in dataclasses.fields(Config):
        here, there = getattr(wanted, field.name), getattr(stored, field.name)
        require(field.name in ("rounds", "track") or here == there, f"cannot resume: the run has {flag(field.name)} {there}, not {here}")
    require(wanted.rounds >= stored.rounds, f"cannot resume: the run has {stored.rounds} rounds, more than {wanted.rounds}")
    return dataclasses.replace(stored, rounds=wanted.rounds, track=wanted.track)


class _Loop:
    def __init__(self, engine: Engine, config: Config, folder: RunFolder, progress: Progress) -> None:
        self.engine, self.config, self.folder, self.progress = engine, config, folder, progress
        self.round, self.seconds, self.saved = 0, 0.0, 0.0
        self.costs = Costs(config.seeds)
        self.rows: list[dict[str, Any]] = []
        self.last_event: str | None = None

    def run(self, resume: bool) -> Run:
        restored = self._restore() if resume else False
        write_atomically(self.folder.config, configs.to_toml(self.config).encode())
        with Trackers(self.folder, self.config, self._lost_tracker) as self.trackers:
            if not restored:
                self._begin()
            elif self._evaluation_is_due():
                self._evaluate()
            self.trackers.tell(self.rows)
            stop = threading.Event()
            with self.progress.running(self.config, self.round), stop_on_interrupt(stop):
                self._rounds(stop)
        return Run(self.folder.path, self.config, self.round, self.rows)

    def _begin(self) -> None:
        manifest.write(self.folder.manifest, {"agents_of_seed_0": describe(self.engine.constants)})
        self.folder.keep_rows(-1)
        self.folder.keep_events(-1)
        began = time.monotonic()
        self.engine.start()
        self.seconds = time.monotonic() - began
        self._record_events()
        if self.engine.log.live and (self.engine.state().failed != HEALTHY).all():
            raise UserError(f"every agent failed before round 0 (the last was {self.last_event}): mend it, then --resume")
        self._evaluate()
        self._save()

    def _evaluation_is_due(self) -> bool:
        """Whether the run was saved in an evaluation in which every agent failed."""
        due = self.round % self.config.eval_every == 0 or self.round == self.config.rounds
        return due and (not self.rows or self.rows[-1]["round"] < self.round)

    def _rounds(self, stop: threading.Event) -> None:
        pace = 1
        while self.round < self.config.rounds and not stop.is_set():
            boundary = min(self.config.rounds, (self.round // self.config.eval_every + 1) * self.config.eval_every)
            count = min(pace, boundary - self.round)
            began = time.monotonic()
            self.engine.advance(self.round, count)
            took = time.monotonic() - began
            self.round, self.seconds = self.round + count, self.seconds + took
            pace = max(1, min(2 * pace, int(count * PACE / max(took, 1e-6))))
            self.progress.advanced(self.round)
            self._record_events()
            if self.engine.log.live:
                pace = 1  # rounds in Python are long enough, and a round in which every environment failed can be done again
                self._stop_if_all_failed()
            if self.round == boundary:
                self._evaluate()
            if self.round == boundary or time.monotonic() - self.saved > self.engine.save_every or stop.is_set():
                self._save()

    def _evaluate(self) -> None:
        scores, state = self.engine.evaluate(self.round), self.engine.state()
        self._record_events()
        # Rewards that are not numbers show here even if no message carried them.
        broken = (state.failed == HEALTHY) & ~np.isfinite(scores.total_return).any(1)
        if self.engine.log.live:
            self._require_someone(self.engine.withheld or not broken.all())
            broken[:] = False  # environments in Python may work again in the next round
        state = state._replace(failed=np.where(broken, self.round, state.failed).astype(state.failed.dtype))
        self.costs.add(state)
        floats = self.engine.traffic.total(self.round, self.costs.env_steps)
        row = make_row(self.round, self.seconds, scores, state, self.costs, floats)
        row |= privacy_spent(self.config, self.engine.traffic, self.round)
        self.folder.append_row(row)
        self.rows.append(row)
        self.engine.load(state)
        self.engine.reset_info()
        self.progress.evaluated(row)
        if (state.failed != HEALTHY).all():
            self._save()
            reason = f"every seed failed (numbers that are not finite, first in round {state.failed.min()})"
            raise UserError(f"{reason}: try a smaller --local-lr or --heterogeneity; all is saved in {self.folder.path}")

    def _stop_if_all_failed(self) -> None:
        """Stops where every environment of every seed failed, saved such that --resume tries that round again."""
        state, last = self.engine.state(), self.round - 1
        if (state.failed != HEALTHY).all():
            retried = np.where(state.failed == last, HEALTHY, state.failed).astype(state.failed.dtype)
            self.engine.load(state._replace(failed=retried))
            self.round = last
            self._require_someone(False)

    def _require_someone(self, left: bool) -> None:
        if not left:
            self._save()
            reason = f"every agent failed in round {self.round} (the last was {self.last_event or 'a number that is not finite'})"
            raise UserError(f"{reason}: mend it, then --resume; all is saved in {self.folder.path}")

    def _record_events(self) -> None:
        for event in self.engine.log.take():
            self.folder.append_event(event)
            whose = "" if event["agent"] is None else f"seed {event['seed']}, agent {event['agent']}: "
            self.last_event = f"{whose}{event['what']}"
            self.progress.happened(event)

    def _save(self) -> None:
        arrays = {f"state.{k}": v for k, v in wire.flatten(self.engine.state()).items()}
        arrays |= {f"costs.{k}": v for k, v in vars(self.costs).items()}
        checkpoint.write(self.folder.checkpoint, arrays, {"round": self.round, "seconds": self.seconds})
        self.saved = time.monotonic()
        self.trackers.tell(self.rows)

    def _lost_tracker(self, what: str) -> None:
        event = {"round": self.round, "during": TRACKING, "seed": 0, "agent": None, "what": one_line(what)}
        with contextlib.suppress(UserError):  # where the disk is full, metrics.jsonl says so
            self.folder.append_event(event)
        self.progress.happened(event)

    def _restore(self) -> bool:
        """Loads the checkpoint; False if the run was killed before its first."""
        if not self.folder.checkpoint.exists():
            return False
        arrays, about = checkpoint.read(self.folder.checkpoint)
        part = {kind: {k.removeprefix(f"{kind}."): v for k, v in arrays.items() if k.startswith(f"{kind}.")} for kind in ("state", "costs")}
        self.engine.load(wire.unflatten(self.engine.template(), part["state"]))
        vars(self.costs).update(part["costs"])
        self.round, self.seconds = about["round"], about["seconds"]
        self.rows = self.folder.keep_rows(self.round)
        self.folder.keep_events(self.round)
        manifest.add_resume(self.folder.manifest, self.round)
        return True


def describe(constants: Any) -> dict[str, list]:
    """The agents' constants of seed 0, for the manifest; long arrays are left out."""
    named = {name: np.asarray(leaf)[0] for name, leaf in wire.flatten(constants).items()}
    # JSON has no infinity
    return {name: [v if np.isfinite(v) else str(v) for v in leaf.tolist()] for name, leaf in named.items() if leaf.ndim == 1}


@contextlib.contextmanager
def stop_on_interrupt(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C (or SIGTERM) lets the current call finish and sets `stop`; a second one stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heard(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""The training loop: rounds, evaluations, metrics, checkpoints, Ctrl-C and resume."""

import contextlib
import datetime
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import msgspec
import numpy as np

from fedpg import cache, named_arrays
from fedpg.errors import UserError, choose, one_line, require
from fedpg.rounds import HEALTHY, SeedState
from fedpg.runs import checkpoint, metrics, policy_files
from fedpg.runs import config as configs
from fedpg.runs.config import FIELDS, Config, flag
from fedpg.runs.folder import RunFolder, append_line, keep_lines, manifest, read_manifest, write_atomically, write_json
from fedpg.runs.metrics import Costs, make_row
from fedpg.runs.progress import Progress
from fedpg.runs.setup import build, resolve
from fedpg.runs.trackers import TRACKING, sending
from fedpg.simulate import Simulator, State

MEMBERSHIP = "membership"
"""What events of a federation are about in which an agent joins it, or leaves it for good."""
OUTSIDE = ("resuming", "greeting", MEMBERSHIP)
"""When events of a federation happen that are true whatever rounds are repeated: they stay."""
PACE = 1.0
"""Seconds that one call into the engine should take, so that the bar moves and Ctrl-C is handled."""


class Run(NamedTuple):
    """A finished or interrupted run.

    Attributes:
        folder: the run folder.
        config: the complete configuration.
        round: the rounds done.
        rows: the lines of metrics.jsonl.
    """

    folder: Path
    config: Config
    round: int
    rows: list[dict[str, Any]]


def train(
    config: Config | None = None,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    make_engine: Callable[[Config], Simulator] = build,
    **settings: Any,
) -> Run:
    """Trains one policy for all agents and writes a run folder.

        fedpg.train(env="cartpole", agents=5, rounds=40, out="runs/mine")

    Args:
        config: the run; left out, the defaults, or with `resume` the folder's own configuration.
        out: the run folder, which must be empty or absent unless `resume`; left out, a new folder under runs/.
        resume: continue from the folder's checkpoint, bit for bit. Only `rounds`, which may grow, and `track` may change.
        progress: gets reports while the run goes on; silent by default.
        make_engine: makes the engine of a complete configuration: a `Simulator`, or an object with its methods (`fedpg.flower`).
        settings: fields of `Config` that win over `config`.
    """
    if (problem := cache.turn_on()) is not None:
        warnings.warn(problem, stacklevel=2)
    for name in settings:
        choose("setting", name, FIELDS)
    given = {name: value for name, value in vars(config or Config()).items() if value != getattr(Config(), name)} | settings
    if resume:
        require(out is not None, "to resume, give the folder of the run: --out, or out=")
        RunFolder(Path(out)).require_run()
        stored = resolve(Config(**configs.read(RunFolder(Path(out)).config)))
        config = resolve(Config(**(vars(stored) | given)))
        for name in FIELDS:
            new, kept = getattr(config, name), getattr(stored, name)
            require(name in ("rounds", "track") or new == kept, f"cannot resume: the run has {flag(name)} {kept}, not {new}")
        require(config.rounds >= stored.rounds, f"cannot resume: the run has {stored.rounds} rounds, more than {config.rounds}")
    else:
        config = resolve(Config(**given))
    # Rounds are cut by the clock, which differs between processes.
    require(jax.process_count() == 1, "a run folder is written by one process: with jax.distributed, use fedpg.simulator")
    folder = RunFolder(Path(out or new_path(config)))
    if not resume:
        folder.require_empty()
    loop = _Loop(make_engine(config), config, folder, progress or Progress())
    with folder.lock():
        return loop.run(resume)


def new_path(config: Config) -> str:
    """Where a run goes that was given no folder."""
    names = (re.sub(r"[^\w.-]+", "-", name) for name in (config.env, config.algorithm))
    return f"runs/{'-'.join(names)}-{datetime.datetime.now():%Y%m%d-%H%M%S}"


class Saved(NamedTuple):
    """The arrays of a checkpoint."""

    state: SeedState
    costs: Costs


class Position(msgspec.Struct):
    """Where a checkpoint is: rounds done, and at the last evaluation, and seconds of training."""

    round: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    evaluated: Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]
    seconds: float


class _Loop:
    """One process of a run.

    Attributes:
        state: the engine's state.
        evaluated: rounds done at the last evaluation; what the state counts since then is not yet in `costs`.
        seconds: spent training since round 0.
        events: how many lines of events.jsonl are about agents.
    """

    state: State

    def __init__(self, engine: Simulator, config: Config, folder: RunFolder, progress: Progress) -> None:
        self.engine, self.config, self.folder, self.progress = engine, config, folder, progress
        self.key = jax.random.key(config.seed)
        # Both before anything is written: they refuse what makes no sense.
        self.blank = engine.blank(self.key)
        self.communication = engine.communication(self.blank)
        self.evaluated, self.seconds, self.saved = -1, 0.0, 0.0
        self.costs = Costs(*np.zeros((3, config.seeds), np.int64))
        self.rows: list[dict[str, Any]] = []
        self.events, self.last_event = 0, "a number that is not finite"

    @property
    def round(self) -> int:
        return int(self.state.round)

    def run(self, resume: bool) -> Run:
        restored = resume and self._restore()
        write_atomically(self.folder.config, configs.to_toml(self.config).encode())
        reports = self.progress.running(self.config, self.round if restored else 0)
        with sending(self.folder, self.config, self._tracker_failed) as self.send, reports:
            if not restored:
                self.folder.metrics.unlink(missing_ok=True)
                keep_lines(self.folder.events, lambda event: resume and event["during"] in OUTSIDE)
            self.engine.events.listen(self._record_events)
            try:
                if not restored:
                    self._begin()
                elif self.evaluated < self.round and self._evaluation_is_due():
                    self._evaluate()
                elif self.evaluated == self.round and not self.folder.policy.exists():
                    self._write_policy()
                self.send(self.rows)
                with stop_on_interrupt() as stop:
                    self._rounds(stop)
            finally:
                self.engine.events.listen(None)
        return Run(self.folder.path, self.config, self.round, self.rows)

    def _begin(self) -> None:
        write_json(self.folder.manifest, manifest())
        began = time.monotonic()
        with ThreadPoolExecutor(1) as meanwhile:
            meanwhile.submit(self.engine.compile, self.blank)  # an error comes again in the first round, which compiles then
            self.state = jax.block_until_ready(self.engine.init(self.key))
            self.seconds = time.monotonic() - began
            self._record_events()
            if self.engine.events.live and not self._healthy().any():
                raise UserError(f"every agent failed before round 0 (the last was {self.last_event}): fix the environment, then --resume")
            self._evaluate()
        self._save()

    def _rounds(self, stop: threading.Event) -> None:
        pace = 1
        while self.round < self.config.rounds and not stop.is_set():
            boundary = min(self.config.rounds, (self.round // self.config.eval_every + 1) * self.config.eval_every)
            count = min(pace, boundary - self.round)
            before, began = self.state, time.monotonic()
            self.state, _ = jax.block_until_ready(self.engine.run(before, count, accumulate=self.round > self.evaluated))
            took = time.monotonic() - began
            self.seconds += took
            pace = max(1, min(2 * pace, int(count * PACE / max(took, 1e-6))))
            self.progress.advanced(self.round)
            self._record_events()
            if self.engine.events.live:
                pace = 1  # rounds in Python are long enough, and a round in which every environment failed can be repeated
                if not self._healthy().any():
                    self.state = before
                    self._stop_without_agents()
            if self._evaluation_is_due():
                self._evaluate()
            if self._evaluation_is_due() or time.monotonic() - self.saved > self.engine.save_every or stop.is_set():
                self._save()

    def _evaluation_is_due(self) -> bool:
        return self.round % self.config.eval_every == 0 or self.round == self.config.rounds

    def _healthy(self) -> np.ndarray:
        """Which seeds have not failed, (seeds,)."""
        return np.asarray(self.state.rows.failed) == HEALTHY

    def _evaluate(self) -> None:
        scores = jax.tree.map(np.asarray, self.engine.evaluate(self.state))
        self._record_events()
        # Rewards that are not numbers show here even if no message carried them.
        broken = self._healthy() & ~np.isfinite(scores.returns).any(1)
        if self.engine.events.live:
            if broken.all() and not self.engine.withheld:
                self._stop_without_agents()
        elif broken.any():
            failed = np.asarray(self.state.rows.failed)
            failed = np.where(broken, self.round, failed).astype(failed.dtype)
            self.state = self.state._replace(rows=self.state.rows._replace(failed=failed))
        rows = jax.tree.map(np.asarray, self.state.rows._replace(server=(), agents=()))
        self.costs = self.costs.plus(rows)
        row = make_row(self.config, self.round, self.seconds, scores, rows, self.costs, self.communication)
        row["events"] = self.events
        append_line(self.folder.metrics, row)
        self.rows.append(row)
        self.evaluated = self.round
        self._write_policy()
        self.progress.evaluated(row)
        if not self._healthy().any():
            self._save()
            reason = f"every seed failed (numbers that are not finite, first in round {rows.failed.min()})"
            raise UserError(f"{reason}: try a smaller --local-lr or --heterogeneity; all is saved in {self.folder.path}")

    def _write_policy(self) -> None:
        """Writes what agents would deploy, with the scores of the last evaluation; not where each agent keeps its own."""
        params = self.engine.params(self.state)
        if params is not None:
            policy_files.write(self.folder.policy, self.config, self.engine.problem, params, self.rows[-1])

    def _stop_without_agents(self) -> None:
        """Stops where every environment failed, saved such that --resume tries the same again."""
        self._save()
        reason = f"every agent failed in round {self.round} (the last was {self.last_event})"
        raise UserError(f"{reason}: fix the environment, then --resume; all is saved in {self.folder.path}")

    def _record_events(self) -> None:
        for event in self.engine.events.take():
            append_line(self.folder.events, event)
            self.events += 1
            whose = "" if event["agent"] is None else f"seed {event['seed']}, agent {event['agent']}: "
            self.last_event = f"{whose}{event['what']}"
            self.progress.happened(event)

    def _tracker_failed(self, what: str) -> None:
        event = {"round": self.round, "during": TRACKING, "seed": 0, "agent": None, "what": one_line(what)}
        with contextlib.suppress(UserError):  # where the disk is full, metrics.jsonl says so
            append_line(self.folder.events, event)
        self.progress.happened(event)

    def _save(self) -> None:
        about = msgspec.to_builtins(Position(self.round, self.evaluated, self.seconds))
        checkpoint.write(self.folder.checkpoint, named_arrays.flatten(Saved(self.state.rows, self.costs)), about)
        self.saved = time.monotonic()
        self.send(self.rows)

    def _restore(self) -> bool:
        """Loads the checkpoint; False if the run was killed before its first."""
        if not self.folder.checkpoint.exists():
            return False
        arrays, about = checkpoint.read(self.folder.checkpoint)
        try:
            at = msgspec.convert(about, Position)
        except msgspec.ValidationError as error:
            raise UserError(f"the checkpoint {self.folder.checkpoint} is of something else: {one_line(str(error))}") from None
        rows, self.costs = named_arrays.unflatten(Saved(self.blank.rows, self.costs), arrays)
        self.state = self.blank._replace(round=self.blank.round + at.round, rows=rows)
        self.evaluated, self.seconds = at.evaluated, at.seconds
        # Lines that were written after the checkpoint will be written again.
        kept = metrics.read(self.folder.metrics)  # refuses a foreign file before anything is dropped from it
        whole = self.evaluated < 0 or any(row["round"] == self.evaluated for row in kept)
        damaged = f"{self.folder.metrics} is damaged: it has no line for round {self.evaluated}, where the checkpoint is from"
        require(whole, f"{damaged}; restore it from a copy, or give another --out to start again")
        self.rows = keep_lines(self.folder.metrics, lambda row: row["round"] <= self.evaluated)
        last = {"training": self.round - 1, "evaluation": self.evaluated}
        events = keep_lines(self.folder.events, lambda event: event["round"] <= last.get(event["during"], self.round))
        self.events = sum(event["during"] != TRACKING for event in events)
        made_with = read_manifest(self.folder.manifest)
        made_with.setdefault("resumed", []).append(manifest() | {"round": self.round})
        write_json(self.folder.manifest, made_with)
        return True


@contextlib.contextmanager
def stop_on_interrupt() -> Iterator[threading.Event]:
    """An event that Ctrl-C (or SIGTERM) sets, so that the current call can finish; a second Ctrl-C stops at once."""
    stop = threading.Event()

    def handle(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    # Python lets only the main thread handle signals.
    signals = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

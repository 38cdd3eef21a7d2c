"""A server as one process beside its SuperLink: proxy, status page, the training in a thread, and a watch over all of them."""

import contextlib
import errno
import functools
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from fedpg.errors import UserError, require
from fedpg.flower.event_queue import EventQueue
from fedpg.flower.flwr_private import OpenRun, RunLost
from fedpg.flower.greeting import Door
from fedpg.flower.keys import key_owner
from fedpg.flower.link import FlowerLink
from fedpg.flower.processes import Running, split_address
from fedpg.flower.protocol import spaces_of
from fedpg.flower.proxy import Proxy
from fedpg.flower.server import Rules, RunTerms
from fedpg.flower.server_app import check, train_remotely
from fedpg.flower.status import STATUS_FILE, StatusWriter, read_status
from fedpg.flower.superlink import SuperLink
from fedpg.runs import metrics
from fedpg.runs.config import Config
from fedpg.runs.folder import RunFolder
from fedpg.runs.setup import prepare, resolve

TRIES = 10
"""How often a SuperLink is restarted without a finished round in between."""
POLL, STANDSTILL_SECONDS = 0.2, 10.0
"""Seconds between looks at the training, and after how many without a look, or an answer of the SuperLink, the server says so."""
OVER_SECONDS = 30.0
"""How long the server waits, after the last round, until its agents know that the run is over."""
STOP_SECONDS = 10.0
"""How long the training may take to notice that it is stopped."""
FULL = (errno.ENOSPC, errno.EDQUOT)
KILLED = "the server was killed, or its machine stopped: it continues from the last finished round"


class Serving(contextlib.ExitStack):
    """A federation's server in this process; a `with` block around it ends everything that it has started.

    Args:
        config: what to run.
        folder: the run folder.
        address: HOST:PORT where agents connect.
        keys: the folder with the server's certificate and the agents' public keys; None: neither encryption nor authentication.
        rules: how agents are treated.
        resume: whether the run continues from its checkpoint, if there is one.

    Attributes:
        status: the file with the federation's status.
    """

    def __init__(self, config: Config, folder: RunFolder, address: str, keys: Path | None, rules: Rules, resume: bool) -> None:
        super().__init__()
        check(config, rules)
        self._config, self._folder, self._keys, self._rules, self._resume = config, folder, keys, rules, resume
        self._host, self._port = split_address(address)
        self._told = 0.0  # `time.monotonic()` of the last question whose missing answer was told
        self._events, self.status = EventQueue(), folder.federation / STATUS_FILE

    def __enter__(self) -> "Serving":
        place = self._folder.federation
        try:
            self.enter_context(RunFolder(place).lock(hint="wait for it, or give another --out"))
            self._running = Running(place)
            self.callback(self._running.clear)
            if not self._resume:
                self.status.unlink(missing_ok=True)
            elif self._running.killed:
                self._events.round = status.round if (status := read_status(self.status)) else 0
                self._events.note(None, KILLED, "resuming")
            self._writer = StatusWriter(self.status, resolve(self._config), metrics.read(self._folder.metrics))
            self._link = SuperLink(place, self._keys, self._running)
            self.callback(self._link.stop)
            config = resolve(self._config)
            spaces, note = spaces_of(prepare(config).federation.environment), functools.partial(self._events.note, during="greeting")
            self._door = Door(config.agents, spaces, self._link.owners, note)
            proxy = Proxy(self._host, self._port, self._link.port, self._keys, self._door, place / "proxy.log", lambda: self._link.ready)
            self.callback(proxy.stop)
            return self
        except BaseException:
            self.close()
            raise

    def run(self) -> None:
        """Runs the federation to its end; raises a `UserError` that says why it cannot. Ctrl-C loses no finished round."""
        tries, reached = 0, -1
        try:
            while True:
                try:
                    self._start(again=reached >= 0)
                    self._try()
                except RunLost as lost:
                    tries, reached = (0 if self._writer.round > reached else tries + 1), self._writer.round
                    require(tries < TRIES, f"the SuperLink failed {TRIES} times in round {reached}: see {self._folder.federation}")
                    self._events.note(None, f"{self._link.describe_loss(lost)}: it is restarted", "resuming")
                else:
                    return self._writer.finished()
        except KeyboardInterrupt:
            self._writer.stopped()
            raise
        except UserError as error:
            self._writer.failed(str(error))
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in FULL:
                self._writer.failed(why := f"the disk of {self._folder.path} is full: make room, then --resume")
                raise UserError(why) from error
            log = self._folder.federation / "server.log"
            with log.open("a") as file:
                traceback.print_exception(error, file=file)
            self._writer.failed(f"{type(error).__name__}: {error}")
            raise UserError(f"{type(error).__name__}: {error}; see {log}") from error

    def _start(self, again: bool) -> None:
        """Starts the SuperLink; one that was killed meanwhile, or does not start again, counts as lost."""
        try:
            self._link.start()
        except UserError as error:
            if (code := self._link.code()) is not None and (again or code < 0):
                raise RunLost(str(error)) from error
            raise

    def _try(self) -> None:
        """Trains until the end of the run, or of the SuperLink."""
        stopped = threading.Event()
        run = self._link.submit(stopped.is_set)
        owner = key_owner(self._keys) if self._keys else lambda node: None

        def make_link(terms: RunTerms, note: Callable[[str], None]) -> FlowerLink:
            self._agents = link = FlowerLink(run, terms, owner, note)
            self._door.present = link.known
            return link

        def train() -> None:
            rest = {"rules": self._rules, "resume": self._folder.config.exists(), "status": self._writer, "events": self._events}
            train_remotely(self._config, self._folder.path, make_link, **rest)
            self._agents.tell("over", "", OVER_SECONDS)

        work = Work(train, self._stood_still, lambda: self._watch(run))
        try:
            work.wait()
        except BaseException:
            stopped.set()
            self._link.stop()  # whatever the training waits for fails now
            raise
        finally:
            work.join(STOP_SECONDS)
            run.close(done=work.done)

    def _stood_still(self, seconds: float) -> None:
        self._told = time.monotonic()  # so long the SuperLink was not listened to
        self._events.note(None, f"the server stood still for {seconds:.0f} s: it was stopped, or its machine was too busy")

    def _watch(self, run: OpenRun) -> None:
        """Says, once for every question, that the SuperLink does not answer."""
        asked = run.asked
        if asked is not None and asked > self._told and time.monotonic() - asked > STANDSTILL_SECONDS:
            self._told = asked
            self._events.note(None, f"no answer from the SuperLink for {STANDSTILL_SECONDS:g} s: it is stopped, or its machine is too busy")


class Work(threading.Thread):
    """A function that runs in a thread, so that the main thread is free for Ctrl-C and for starting processes.

    `watch` is called several times a second, and `stood_still` with the seconds for which not even the main thread ran.
    """

    def __init__(self, function: Callable[[], object], stood_still: Callable[[float], None], watch: Callable[[], None]) -> None:
        super().__init__(name="training", daemon=True)
        self._function, self._stood_still, self._watch, self.done, self._error = function, stood_still, watch, False, None
        self.start()

    def run(self) -> None:
        """What the thread does."""
        try:
            self._function()
            self.done = True
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        """Returns when the function has, or raises what it has raised."""
        while self.is_alive():
            began = time.monotonic()
            self.join(POLL)
            if (lost := time.monotonic() - began) > STANDSTILL_SECONDS:
                self._stood_still(lost)
            self._watch()
        if self._error:
            raise self._error

"""Federations of real processes on this machine: `fedpg serve` and `fedpg join` with all that they start, none of which is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedpg.flower.processes import free_port
from fedpg.flower.status import AWAY
from fedpg.runs.config import Config, to_toml
from fedpg.runs.setup import resolve

MARK = "FEDPG_TEST_FEDERATION"
"""A variable in the environment of everything that a federation starts: what it is found by."""
PATIENCE = 900.0
"""Seconds after which something that does not happen counts as never happening: a busy machine is no failure."""
QUICK = {"local_steps": 2, "batch": 2, "horizon": 10, "eval_every": 100, "agents": 3, "rounds": 4}
"""A run whose rounds take no time but Flower's."""


class Real:
    """One federation in a folder.

    Args:
        folder: where everything goes.
        flags: more of `fedpg serve`'s.
        config: fields of `Config`, over `QUICK`.
    """

    def __init__(self, folder: Path, flags: tuple[str, ...] = (), **config: Any) -> None:
        self.folder, self.out, self.flags = folder, folder / "run", flags
        self.address, self.secure = f"127.0.0.1:{free_port()}", ("--insecure",)
        self.mark = uuid.uuid4().hex
        self.environment = {MARK: self.mark, "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "xla")}
        self.config = Config(**({"env": "random-mdp", "algorithm": "fedsvrpg-m"} | QUICK | config))
        (folder / "fed.toml").write_text(to_toml(self.config))
        self.processes: dict[str, subprocess.Popen] = {}
        self.inside: dict[str, tuple[str, ...]] = {}  # name -> words before the command

    def start(self, name: str, *words: str) -> subprocess.Popen:
        """`fedpg WORDS`, in a session of its own, what it prints in NAME.log."""
        return self.launch(name, [*self.inside.get(name, ()), sys.executable, "-m", "fedpg", *words])

    def launch(self, name: str, command: list[str]) -> subprocess.Popen:
        """Any command, likewise."""
        with (self.folder / f"{name}.log").open("ab") as log:
            environment = dict(os.environ) | self.environment
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        return self.processes[name]

    def serve(self, *more: str) -> subprocess.Popen:
        """The server; `--resume` among `more` goes on with its run."""
        given = () if "--resume" in more else ("--config", str(self.folder / "fed.toml"))
        words = (*given, "--out", str(self.out), "--address", self.address, "--status", "none", *self.secure, *self.flags, *more)
        return self.start("serve", "serve", *words)

    def join(self, agent: int, *more: str, env: str | None = None) -> subprocess.Popen:
        """Agent `agent`."""
        words = ("--server", self.address, "--agent-id", str(agent), "--env", env or self.config.env, *self.secure)
        return self.start(f"join-{agent}", "join", *words, "--folder", str(self.folder / f"agent-{agent}"), *more)

    def finish(self, seconds: float = PATIENCE) -> list[dict[str, Any]]:
        """Waits for the server to end well; the rows of its metrics."""
        code = self.processes["serve"].wait(seconds)
        assert code == 0, f"serve ended with {code}:\n{self.log('serve')}"
        return self.lines("metrics.jsonl")

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The lines of a file of the run folder."""
        path = self.out / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def events(self, agent: int | None = None) -> list[dict[str, Any]]:
        """What went wrong, with one agent or with all."""
        return [event for event in self.lines("events.jsonl") if agent is None or event["agent"] == agent]

    def log(self, name: str) -> str:
        """What a process has printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_until(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Returns when `condition` holds."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s:\n{self.log('serve')}"
            assert "serve" not in self.processes or self.processes["serve"].poll() in (None, -9), self.log("serve")
            time.sleep(0.2)

    def status(self) -> dict[str, Any]:
        """What the server says of itself; empty before it says anything."""
        with contextlib.suppress(OSError, json.JSONDecodeError):
            return json.loads((self.out / "federation" / "status.json").read_text())
        return {}

    def round(self) -> int:
        """Rounds done."""
        return self.status().get("round", -1)

    def agent(self, number: int) -> dict[str, Any]:
        """What the server says of an agent."""
        return self.status()["agents"][number]

    def is_present(self, agent: int) -> bool:
        """Whether the server says that an agent is there."""
        return self.agent(agent)["state"] not in AWAY

    def missed(self, agent: int) -> dict[int, str]:
        """The rounds whose training an agent was not part of, and why."""
        away = ("absent", "no answer", "its node has gone", "it connected anew", "could not be sent", "refused", "Flower reports")
        events = [event for event in self.events(agent) if event["during"] == "training"]
        return {event["round"]: event["what"] for event in events if event["what"].startswith(away)}

    def check_whole(self) -> None:
        """All rounds are done, once each, and what the run has cost is the work of those who took part in them."""
        assert self.status()["phase"] == "finished"
        config, rows = resolve(self.config), self.lines("metrics.jsonl")
        assert self.round() == config.rounds
        assert [row["round"] for row in rows] == sorted({*range(0, config.rounds, config.eval_every), config.rounds})
        for name in ("seconds", "env_steps", "trajectories"):
            assert [row[name] for row in rows] == sorted(row[name] for row in rows)
        work = config.rounds * config.agents - sum(len(self.missed(agent)) for agent in range(config.agents))
        assert rows[-1]["trajectories"] - rows[0]["trajectories"] == work * config.local_steps * config.batch
        for event in self.events():
            assert (0 <= event["round"] <= config.rounds, event["seed"]) == (True, 0), event

    def kill(self, name: str) -> None:
        """`kill -9` of a process and of whatever it has started."""
        root = self.processes[name].pid
        for process in (*descendants(root), root):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.processes[name].wait()

    def close(self) -> list[int]:
        """Ends everything in good order; the processes that had to be killed because they outlived that."""
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
        end = time.monotonic() + 15
        while (left := self.alive()) and time.monotonic() < end:
            time.sleep(0.2)
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return left

    def alive(self) -> list[int]:
        """Every process that this federation has started, directly or not."""
        return alive(self.mark)


def alive(mark: str) -> list[int]:
    """The processes that have this `MARK` in their environment."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (path / "environ").read_bytes() and (path / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                found.append(int(path.name))
    return found


def descendants(process: int) -> list[int]:
    """All processes that a process has started, and those that they have started."""
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rsplit(")", 1)[1].split()[1]) == process:
                children.append(int(path.parent.name))
    return [found for child in children for found in (*descendants(child), child)]


def named(root: int, word: str) -> list[int]:
    """The processes below one whose command has a word."""
    found = []
    for process in descendants(root):
        with contextlib.suppress(OSError):  # it may have ended since
            if word in Path(f"/proc/{process}/cmdline").read_bytes().decode().replace("\0", " "):
                found.append(process)
    return found


@contextlib.contextmanager
def federation(folder: Path, flags: tuple[str, ...] = (), **config: Any) -> Iterator[Real]:
    """A federation that ends with the test, and fails it if a process does not."""
    real = Real(folder, flags, **config)
    try:
        yield real
    finally:
        left = real.close()
    assert not left, "processes outlived their federation"

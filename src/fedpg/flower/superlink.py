"""Flower's SuperLink on the server's machine: behind our proxy, with the agents' keys, and with our ServerApp on it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fedpg.errors import UserError, require
from fedpg.flower import processes
from fedpg.flower.keys import agent_keys, flower_key
from fedpg.flower.processes import Child
from fedpg.flower.proxy import Proxy
from fedpg.flower.server import Rules
from fedpg.flower.server_app import OPTIONS, PROCESS
from fedpg.flower.status import STATUS_FILE, read_status
from fedpg.runs.folder import RunFolder, write_atomically

APP = Path(__file__).parent / "app"
"""The Flower app, for `flwr run`."""
CONNECTION = "fedpg"
"""The name of our SuperLink in Flower's configuration."""
TRIES = 5
"""How often a ServerApp that died is restarted without a finished round in between."""
START_SECONDS = 120.0
"""How long a ServerApp may take to start."""
REGISTERED = "registered.pem"
"""The file with the keys that are in the SuperLink's database."""
RUN_ID = "flower-run"
"""The file with Flower's number of the run."""
PARALLEL = 4
"""Flower's commands that run side by side."""
POLL = 0.5


class SuperLink:
    """A running SuperLink with our ServerApp on it.

    Args:
        config: the run's TOML file.
        out: the run folder.
        address: HOST:PORT where agents connect.
        keys: the folder with the server's certificate and the agents' public keys; None: neither encryption nor authentication.
        rules: how agents are treated.
        resume: whether the run continues from its checkpoint.
    """

    def __init__(self, config: Path, out: Path, address: str, keys: Path | None, rules: Rules, resume: bool) -> None:
        self._folder, self._keys = RunFolder(out).federation, keys
        host, port = processes.split_address(address)
        self._home, self._port, self._proxy = self._folder / "flower", processes.free_port(), None
        for stale in (PROCESS, STATUS_FILE):
            (self._folder / stale).unlink(missing_ok=True)
        self._child = Child(self._command(), self._folder / "superlink.log", self._home)
        self._tries, self._round = 0, -1
        try:
            paths = {"config": str(config.resolve()), "out": str(out.resolve()), "keys": str(keys.resolve()) if keys else None}
            write_atomically(self._folder / OPTIONS, json.dumps(paths | {"rules": dataclasses.asdict(rules)}).encode())
            processes.wait_until_open(self._port, self._child)
            self._write_connection()
            known = self._register_keys()
            self._proxy = Proxy(host, port, self._port, keys, known, self._folder / "proxy.log")
            self._submit(resume)
        except BaseException:
            self.stop()
            raise

    def _command(self) -> list[str]:
        # Only reachable from this machine: see `fedpg.flower.proxy`.
        words = [processes.command("flower-superlink"), "--host", "127.0.0.1", "--port", str(self._port)]
        words += ["--database", str(self._folder / "superlink.db"), "--disable-runtime-dependency-installation"]
        if self._keys is None:
            return [*words, "--insecure"]
        for flag, file in {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.pem", "--ssl-keyfile": "server.key"}.items():
            require((self._keys / file).exists(), f"no {file} in {self._keys}: make a set of keys with fedpg cert, or give --insecure")
            words += [flag, str(self._keys / file)]
        return [*words, "--enable-supernode-auth"]

    def _write_connection(self) -> None:
        """Tells Flower's own commands how to reach this SuperLink."""
        keys = self._keys
        secure = "insecure = true" if keys is None else f"root-certificates = {json.dumps(str((keys / 'ca.crt').resolve()))}"
        text = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "127.0.0.1:{self._port}"\n{secure}\n'
        self._home.mkdir(parents=True, exist_ok=True)
        (self._home / "config.toml").write_text(text + "\n[superlink.local]\noptions.num-supernodes = 1\n")

    def _flwr(self, *words: str) -> str:
        """What `flwr WORDS` prints."""
        command, environment = [processes.command("flwr"), *words], processes.environment(self._home)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        printed = done.stdout + done.stderr
        with (self._folder / "flwr.log").open("a") as file:
            file.write(f"$ flwr {' '.join(words)}\n{printed}\n")
        return printed

    def _register_keys(self) -> frozenset[bytes]:
        """Registers the agents' public keys with the SuperLink, once each; returns them."""
        if self._keys is None:
            return frozenset()
        keys = {flower_key(path): path for path in agent_keys(self._keys).values()}
        path = self._folder / REGISTERED
        known = path.read_text() if path.exists() else ""
        new = {key: file for key, file in keys.items() if key.decode() not in known}
        with ThreadPoolExecutor(PARALLEL) as pool:
            replies = list(pool.map(lambda file: self._flwr("supernode", "register", str(file), CONNECTION), new.values()))
        for file, printed in zip(new.values(), replies, strict=True):
            accepted = "success" in printed.lower() or "already" in printed.lower()
            require(accepted, f"Flower did not accept the key {file}: see {self._folder / 'flwr.log'}")
        write_atomically(path, (known + b"".join(new).decode()).encode())
        return frozenset(keys)

    def _submit(self, resume: bool) -> None:
        """Starts our ServerApp."""
        (self._folder / PROCESS).unlink(missing_ok=True)
        before = self._folder / RUN_ID
        if before.exists():
            # A SuperNode with half a message of a dead ServerApp waits for the rest until that run is stopped.
            self._flwr("stop", before.read_text(), CONNECTION, "--format", "json")
        values = {"options": str((self._folder / OPTIONS).resolve()), "resume": resume}
        config = " ".join(f"{name}={json.dumps(value)}" for name, value in values.items())
        printed = self._flwr("run", str(APP), CONNECTION, "--format", "json", "-c", config)
        require('"success": true' in printed, f"Flower did not accept the run: see {self._folder / 'flwr.log'}")
        if found := re.search(r'"run-id": "(\d+)"', printed):
            write_atomically(before, found[1].encode())
        self._submitted = time.monotonic()

    def wait(self) -> None:
        """Returns when the run has finished; raises a `UserError` that says why it has not."""
        while True:
            time.sleep(POLL)
            status = read_status(self._folder / STATUS_FILE)
            if status is not None and status.phase == "finished":
                return
            if status is not None and status.phase == "failed":
                raise UserError(status.state.removeprefix("failed: "))
            if self._child.code() is not None:
                raise UserError(f"the SuperLink ended with code {self._child.code()}: see {self._child.log}; continue with --resume")
            if not self._app_runs():
                self._restart(status.round if status else -1)

    def _app_runs(self) -> bool:
        """Whether our ServerApp runs, or may still be starting."""
        process = self._app_process()
        return time.monotonic() - self._submitted < START_SECONDS if process is None else processes.is_running(process)

    def _app_process(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return int((self._folder / PROCESS).read_text())
        return None

    def _restart(self, round: int) -> None:
        self._tries = 0 if round > self._round else self._tries + 1
        self._round = round
        require(self._tries < TRIES, f"the ServerApp died {TRIES} times in round {round}: see {self._child.log}")
        self._submit(True)

    def stop(self) -> None:
        """Ends all processes. Our ServerApp is in a session of its own and would outlive a SuperLink that was killed."""
        if self._proxy:
            self._proxy.stop()
        self._child.stop()
        if (process := self._app_process()) is not None:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)

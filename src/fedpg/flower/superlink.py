"""The server's machine: a SuperLink behind a gate, the agents' keys made known to it, and our ServerApp submitted, again if it dies."""

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
from fedpg.flower import processes, status
from fedpg.flower.certificates import flower_key
from fedpg.flower.gate import Gate, Way
from fedpg.flower.keys import agent_keys
from fedpg.flower.processes import Child
from fedpg.flower.server import Rules
from fedpg.flower.server_app import PROCESS, STATUS
from fedpg.runs.folder import RunFolder, write_atomically

APP = Path(__file__).parent / "app"
"""The Flower app, for `flwr run`."""
CONNECTION = "fedpg"
"""What Flower's configuration calls our SuperLink."""
TRIES = 5
"""How often a ServerApp that died is started again without a round having been finished."""
REGISTERED = "registered.pem"
"""The keys that the SuperLink's database has."""
NUMBER = "flower-run"
"""What Flower calls the run."""
AT_ONCE = 4
"""Flower's commands that run side by side."""
POLL = 0.5


@dataclasses.dataclass(frozen=True)
class Service:
    """What a server needs to know beyond the run itself."""

    config: Path
    """The run's TOML file."""
    out: Path
    """The run folder."""
    address: str
    """HOST:PORT where agents come."""
    keys: Path | None
    """The folder with the server's certificate and the agents' public keys; None: neither encryption nor authentication."""
    rules: Rules


class SuperLink:
    """A running SuperLink with our app on it.

    Args:
        service: what it serves.
        resume: whether the run goes on from its checkpoint.
    """

    def __init__(self, service: Service, resume: bool) -> None:
        self._service = service
        self._own = RunFolder(service.out).federation
        host, port = processes.split_address(service.address)
        self._port = processes.free_port()
        for stale in (PROCESS, STATUS):
            (self._own / stale).unlink(missing_ok=True)
        self._gate: Gate | None = None
        self._link = Child(self._words(), self._own / "superlink.log", self._home)
        self._tries, self._round = 0, -1
        try:
            processes.wait_until_open(self._port, self._link)
            self._write_connection()
            known = self._register()
            self._gate = Gate(Way(host, port, self._port, service.keys, known, self._own / "gate.log"))
            self._submit(resume)
        except BaseException:
            self.stop()
            raise

    @property
    def _home(self) -> Path:
        return self._own / "flower"

    def _words(self) -> list[str]:
        database = ["--database", str(self._own / "superlink.db")]
        # Only from this machine: see `fedpg.flower.gate`.
        words = [processes.command("flower-superlink"), "--host", "127.0.0.1", "--port", str(self._port), *database]
        words += ["--disable-runtime-dependency-installation"]
        if (keys := self._service.keys) is None:
            return [*words, "--insecure"]
        files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.pem", "--ssl-keyfile": "server.key"}
        for file in files.values():
            require((keys / file).exists(), f"no {file} in {keys}: make a set of keys with fedpg cert, or give --insecure")
        return [*words, *(word for flag, file in files.items() for word in (flag, str(keys / file))), "--enable-supernode-auth"]

    def _write_connection(self) -> None:
        """How Flower's own commands find this SuperLink: from this machine."""
        keys = self._service.keys
        secure = "insecure = true" if keys is None else f"root-certificates = {json.dumps(str((keys / 'ca.crt').resolve()))}"
        text = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "127.0.0.1:{self._port}"\n{secure}\n'
        self._home.mkdir(parents=True, exist_ok=True)
        (self._home / "config.toml").write_text(text + "\n[superlink.local]\noptions.num-supernodes = 1\n")

    def _flwr(self, *words: str) -> str:
        done = subprocess.run(
            [processes.command("flwr"), *words],
            env=processes.environment(self._home),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        said = done.stdout + done.stderr
        with (self._own / "flwr.log").open("a") as file:
            file.write(f"$ flwr {' '.join(words)}\n{said}\n")
        return said

    def _register(self) -> frozenset[bytes]:
        """Makes the agents' public keys known to the SuperLink, once each; returns them."""
        if self._service.keys is None:
            return frozenset()
        keys = {flower_key(path): path for path in agent_keys(self._service.keys).values()}
        path = self._own / REGISTERED
        known = path.read_text() if path.exists() else ""
        new = {key: file for key, file in keys.items() if key.decode() not in known}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            said = list(pool.map(lambda file: self._flwr("supernode", "register", str(file), CONNECTION), new.values()))
        for file, words in zip(new.values(), said, strict=True):
            fine = "success" in words.lower() or "already" in words.lower()
            require(fine, f"Flower did not accept the key {file}: see {self._own / 'flwr.log'}")
        write_atomically(path, (known + b"".join(new).decode()).encode())
        return frozenset(keys)

    def _submit(self, resume: bool) -> None:
        """Starts our ServerApp."""
        rules = self._service.rules
        values = {
            "config": str(self._service.config.resolve()),
            "out": str(self._service.out.resolve()),
            "resume": resume,
            "keys": str(self._service.keys.resolve()) if self._service.keys else "",
            "deadline": float(rules.deadline),
            "quorum": rules.quorum,
            "norm-bound": float(rules.norm_bound),
            "start-with": rules.start_with,
        }
        (self._own / PROCESS).unlink(missing_ok=True)
        before = self._own / NUMBER
        if before.exists():
            # A SuperNode that has half a message of a ServerApp that died waits for the rest, and for nothing else, until the run is over.
            self._flwr("stop", before.read_text(), CONNECTION, "--format", "json")
        asked = " ".join(f"{name}={json.dumps(value)}" for name, value in values.items())
        said = self._flwr("run", str(APP), CONNECTION, "--format", "json", "-c", asked)
        require('"success": true' in said, f"Flower did not take the run: see {self._own / 'flwr.log'}")
        if found := re.search(r'"run-id": "(\d+)"', said):
            write_atomically(before, found[1].encode())
        self._submitted = time.monotonic()

    def wait(self) -> None:
        """Returns when the run has finished; raises a `UserError` that says why it has not."""
        while True:
            time.sleep(POLL)
            found = status.read(self._own / STATUS)
            if found is not None and found.finished:
                return
            if found is not None and found.failure:
                raise UserError(found.failure)
            if self._link.code() is not None:
                raise UserError(f"the SuperLink ended with code {self._link.code()}: see {self._link.log}; go on with --resume")
            if not self._serving():
                self._again(found.round if found else -1)

    def _serving(self) -> bool:
        """Whether our ServerApp lives, or may still be on its way."""
        path = self._own / PROCESS
        if not path.exists():
            return time.monotonic() - self._submitted < 120.0
        try:
            os.kill(int(path.read_text()), 0)
        except (ProcessLookupError, ValueError):
            return False
        return not _is_dead(int(path.read_text()))

    def _again(self, round: int) -> None:
        self._tries = 0 if round > self._round else self._tries + 1
        self._round = round
        require(self._tries < TRIES, f"the ServerApp died {TRIES} times in round {round}: see {self._link.log}")
        self._submit(True)

    def stop(self) -> None:
        """Ends all processes. Our ServerApp is in a session of its own: it would outlive a SuperLink that was killed."""
        if self._gate:
            self._gate.stop()
        self._link.stop()
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self._own / PROCESS).read_text()), signal.SIGKILL)


def _is_dead(process: int) -> bool:
    """Whether a process has ended but was not yet waited for by its parent."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True

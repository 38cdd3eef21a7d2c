"""The SuperLink of a server: started, told the agents' keys, given a run, restarted, and stopped."""

import base64
import json
import re
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fedpg.errors import require
from fedpg.flower.flwr_private import OpenRun, RunLost
from fedpg.flower.keys import agent_keys, flower_key
from fedpg.flower.processes import Child, Running, command, environment, free_port, key_flags, wait_until_open, with_parent, write_secret
from fedpg.runs.folder import write_atomically

APP = Path(__file__).parent / "app"
"""The Flower app, for `flwr run`."""
CONNECTION = "fedpg"
"""The name of our SuperLink in Flower's configuration."""
REGISTERED = "registered.pem"
"""The file with the keys that are in the SuperLink's database."""
RUN_ID = "flower-run"
"""The file with Flower's number of the run."""
PARALLEL = 4
"""Flower's commands that run side by side."""


class SuperLink:
    """A SuperLink that runs from `start` until `stop`, reachable from this machine only: see `fedpg.flower.proxy`.

    Args:
        folder: for its database and its logs.
        keys: the folder with the server's certificate and the agents' public keys; None: neither encryption nor authentication.
        running: where its process is recorded.

    Attributes:
        port: where it listens; the same after a restart.
        owners: public key of an agent, as in Flower's header -> agent.
    """

    def __init__(self, folder: Path, keys: Path | None, running: Running) -> None:
        self._folder, self._keys, self._running = folder, keys, running
        self._home, self.port, self._child = folder / "flower", free_port(), None
        secure = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.pem", "--ssl-keyfile": "server.key"}
        self._secure = key_flags(keys, secure) + (["--enable-supernode-auth"] if keys else [])
        files = agent_keys(keys) if keys else {}
        self.owners = {base64.b64encode(flower_key(path)).decode(): agent for agent, path in files.items()}

    def start(self) -> None:
        """Starts it, or starts it again."""
        self.stop()
        self._secret = write_secret(self._folder / "superlink.secret")
        words = [command("flower-superlink"), "--host", "127.0.0.1", "--port", str(self.port)]
        words += ["--database", str(self._folder / "superlink.db"), "--disable-runtime-dependency-installation"]
        # It starts no process of its own: `OpenRun`, which knows the secret, is the server app.
        words += ["--isolation", "process", "--superexec-auth-secret-file", str(self._folder / "superlink.secret")]
        words += self._secure
        # Its database survives a kill, and a polite end may take as long as an agent's call.
        self._child = Child(words, self._folder / "superlink.log", self._home, self._running, parting=signal.SIGKILL)
        wait_until_open(self.port, self._child)
        self._write_connection()
        self._register_keys()

    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._child.code()

    def describe_loss(self, lost: RunLost) -> str:
        """Why a run on it was lost, in a few words."""
        code = self.code()
        return f"the SuperLink does not serve the run any more ({lost})" if code is None else f"the SuperLink ended with code {code}"

    def stop(self) -> None:
        """Ends it."""
        if self._child:
            self._child.stop()

    def submit(self, is_over: Callable[[], bool]) -> OpenRun:
        """A new run on it; an earlier one is stopped. `is_over`: whether the run is not wanted any more."""
        before = self._folder / RUN_ID
        if before.exists():
            # A SuperNode with half a message of a dead server app waits for the rest until that run is stopped.
            self._flwr("stop", before.read_text(), CONNECTION, "--format", "json")
        printed = self._flwr("run", str(APP), CONNECTION, "--format", "json")
        found = re.search(r'"run-id": "(\d+)"', printed)
        require('"success": true' in printed and bool(found), f"Flower did not accept the run: see {self._folder / 'flwr.log'}")
        write_atomically(before, found[1].encode())
        authority = (self._keys / "ca.crt").read_bytes() if self._keys else None
        return OpenRun(f"127.0.0.1:{self.port}", self._secret, authority, int(found[1]), lambda: is_over() or self.code() is not None)

    def _write_connection(self) -> None:
        """Tells Flower's own commands how to reach this SuperLink."""
        secure = f"root-certificates = {json.dumps(str((self._keys / 'ca.crt').resolve()))}" if self._keys else "insecure = true"
        text = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "127.0.0.1:{self.port}"\n{secure}\n'
        (self._home / "config.toml").write_text(text + "\n[superlink.local]\noptions.num-supernodes = 1\n")

    def _flwr(self, *words: str) -> str:
        """What `flwr WORDS` prints."""
        line = with_parent([command("flwr"), *words], signal.SIGKILL)
        done = subprocess.run(line, env=environment(self._home), capture_output=True, text=True, timeout=120, check=False)
        printed = done.stdout + done.stderr
        with (self._folder / "flwr.log").open("a") as file:
            file.write(f"$ flwr {' '.join(words)}\n{printed}\n")
        return printed

    def _register_keys(self) -> None:
        """Registers the agents' public keys with the SuperLink, once each."""
        path = self._folder / REGISTERED
        known = path.read_text() if path.exists() else ""
        files = agent_keys(self._keys).values() if self._keys else ()
        new = {key: file for file in files if (key := flower_key(file)).decode() not in known}
        with ThreadPoolExecutor(PARALLEL) as pool:
            replies = list(pool.map(lambda file: self._flwr("supernode", "register", str(file), CONNECTION), new.values()))
        for file, printed in zip(new.values(), replies, strict=True):
            accepted = "success" in printed.lower() or "already" in printed.lower()
            require(accepted, f"Flower did not accept the key {file}: see {self._folder / 'flwr.log'}")
        write_atomically(path, (known + b"".join(new).decode()).encode())

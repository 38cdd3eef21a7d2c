"""The SuperLink of a server: started, told the agents' keys, given a run, restarted, and stopped."""

import base64
import signal
from collections.abc import Callable
from pathlib import Path

from fedpg.flower.flwr_private import OpenRun, RunLost, opened
from fedpg.flower.keys import agent_keys, flower_key
from fedpg.flower.processes import Child, Running, command, free_port, key_flags, wait_until_open, write_secret
from fedpg.runs.folder import write_atomically

APP = Path(__file__).parent / "app"
"""The Flower app of a run."""
RUN_ID = "flower-run"
"""The file with Flower's number of the run."""


class SuperLink:
    """A SuperLink that runs from `start` until `stop`, reachable from this machine only: see `fedpg.flower.proxy`.

    Args:
        folder: for its database and its logs.
        keys: the folder with the server's certificate and the agents' public keys; None: neither encryption nor authentication.
        running: where its process is recorded.

    Attributes:
        port: where it listens; the same after a restart.
        ready: whether it runs and knows the agents' keys.
        owners: public key of an agent, as in Flower's header -> agent.
    """

    def __init__(self, folder: Path, keys: Path | None, running: Running) -> None:
        self._folder, self._keys, self._running = folder, keys, running
        self._home, self.port, self._child, self.ready = folder / "flower", free_port(), None, False
        secure = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.pem", "--ssl-keyfile": "server.key"}
        self._secure = key_flags(keys, secure) + (["--enable-supernode-auth"] if keys else [])
        self._address, self._authority = f"127.0.0.1:{self.port}", (keys / "ca.crt").read_bytes() if keys else None
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
        self._register_keys()
        self.ready = True

    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._child.code()

    def describe_loss(self, lost: RunLost) -> str:
        """Why a run on it was lost, in a few words."""
        code = self.code()
        return f"the SuperLink does not serve the run any more ({lost})" if code is None else f"the SuperLink ended with code {code}"

    def stop(self) -> None:
        """Ends it."""
        self.ready = False
        if self._child:
            self._child.stop()

    def submit(self, is_over: Callable[[], bool]) -> OpenRun:
        """A new run on it; an earlier one is stopped. `is_over`: whether the run is not wanted any more.

        Raises:
            RunLost: if it dies meanwhile.
        """
        before = self._folder / RUN_ID
        with opened(self._address, self._authority) as control:
            if before.exists():
                # A SuperNode with half a message of a dead server app waits for the rest until that run is stopped.
                control.stop_run(int(before.read_text()))
            number = control.start_run(APP)
        write_atomically(before, str(number).encode())
        return OpenRun(self._address, self._secret, self._authority, number, lambda: is_over() or self.code() is not None)

    def _register_keys(self) -> None:
        """Registers the agents' public keys; those that its database has stay as they are."""
        if self._keys:
            with opened(self._address, self._authority) as control:
                for file in agent_keys(self._keys).values():
                    control.register(flower_key(file))

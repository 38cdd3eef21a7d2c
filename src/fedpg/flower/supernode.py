"""Flower's SuperNode on an agent's machine: it fetches tasks, which are performed in this process, and is restarted if it dies."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from fedpg.errors import UserError, require
from fedpg.flower import keys, processes
from fedpg.flower.flwr_private import AnswerPacket, TaskRunner
from fedpg.flower.processes import Child

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds before a SuperNode that died is restarted; the pause doubles every time."""
REFUSALS = ("[code: 2001]", "[code: 2004]")
"""Printed by a SuperNode that is refused: its key is unknown, or a node with its key still counts as connected."""
REFUSED_SECONDS = 100.0
"""How long a refusal may mean the second: Flower notices only after 60 s that a node was killed."""


class SuperNode:
    """A running SuperNode.

    Args:
        server: HOST:PORT of the server.
        agent: the agent's number.
        answer: packet -> packet; never raises.
        folder: the agent's own.
        key_folder: the folder with ca.crt and agent-I; None: neither encryption nor authentication.
        tell: called with one line when it has to be restarted.
    """

    def __init__(
        self, server: str, agent: int, answer: AnswerPacket, folder: Path, key_folder: Path | None, tell: Callable[[str], None]
    ) -> None:
        processes.split_address(server)
        self._secret_file = folder / "supernode.secret"
        words = [processes.command("flower-supernode"), "--superlink", server, "--host", "127.0.0.1"]
        # It starts no process of its own: `TaskRunner`, which knows the secret, performs its tasks.
        words += ["--isolation", "process", "--superexec-auth-secret-file", str(self._secret_file)]
        if key_folder is None:
            words += ["--insecure"]
        else:
            files = {"--root-certificates": "ca.crt", "--auth-supernode-private-key": f"agent-{agent}"}
            for flag, file in files.items():
                require((key_folder / file).exists(), f"no {file} in {key_folder}: fedpg cert makes it, or give --insecure")
                words += [flag, str(key_folder / file)]
        self._words, self._folder, self._answer, self._tell, self._encrypted = words, folder, answer, tell, key_folder is not None
        self._start()

    def _start(self) -> None:
        port, secret = processes.free_port(), secrets.token_bytes(32)
        with open(os.open(self._secret_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(secret)
        words, authority = [*self._words, "--port", str(port)], None
        if self._encrypted:
            # TLS also between the SuperNode and this process: other users of the machine must not read messages.
            own = self._folder / "loopback"
            shutil.rmtree(own, ignore_errors=True)
            keys.make_keys(own, (), 1)
            authority = (own / "ca.crt").read_bytes()
            for flag, file in (("certfile", "server.pem"), ("keyfile", "server.key"), ("ca-certfile", "ca.crt")):
                words += [f"--ssl-{flag}", str(own / file)]
        self._child = Child(words, self._folder / "supernode.log", self._folder / "flower")
        self._runner = TaskRunner(f"127.0.0.1:{port}", secret, self._answer, self._tell, authority)

    def wait(self) -> None:
        """Keeps it running; raises a `UserError` if the server refuses it."""
        pause, refused_since = FIRST_PAUSE, None
        while True:
            began = time.monotonic()
            while self._child.code() is None:
                time.sleep(0.5)
            refused_since = (refused_since or began) if any(code in self._child.printed() for code in REFUSALS) else None
            if refused_since and time.monotonic() - refused_since > REFUSED_SECONDS:
                raise UserError(f"the server refuses this agent: is its key among the server's? See {self._child.log}")
            pause = FIRST_PAUSE if time.monotonic() - began > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
            self._tell(f"the SuperNode ended with code {self._child.code()}: restarting it in {pause:g} s (see {self._child.log})")
            time.sleep(pause)
            self.stop()
            self._start()

    def stop(self) -> None:
        """Ends it and everything that it has started."""
        self._runner.stop()
        self._child.stop()

"""An agent's machine: a SuperNode that fetches tasks, started again if it dies, and the executor in this process that does them."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from fedpg.errors import UserError, require
from fedpg.flower import certificates, processes
from fedpg.flower.executor import Executor
from fedpg.flower.processes import Child

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds before a SuperNode that died is started again: twice as long every time."""
REFUSALS = ("[code: 2001]", "[code: 2004]")
"""What a SuperNode prints that is not let in: its key is not known, or a node with its key is still taken to be there."""
TAKEN_TO_BE_THERE = 100.0
"""Seconds for which a refusal may mean the second: Flower misses a node that was killed only after 60."""


class SuperNode:
    """A running SuperNode, whose tasks are done here.

    Args:
        server: HOST:PORT of the server.
        agent: the agent's number.
        answer: packet -> packet; never raises.
        folder: the agent's own.
        keys: the folder with ca.crt and agent-N; None: neither encryption nor authentication.
        tell: called with one line when it has to be started again.
    """

    def __init__(
        self, server: str, agent: int, answer: Callable[[bytes], bytes], folder: Path, keys: Path | None, tell: Callable[[str], None]
    ) -> None:
        processes.split_address(server)
        words = [processes.command("flower-supernode"), "--superlink", server, "--host", "127.0.0.1"]
        # It starts no process of its own: tasks are left to our executor, which knows the secret.
        secret = folder / "supernode.secret"
        words += ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
        if keys is None:
            words += ["--insecure"]
        else:
            files = {"--root-certificates": "ca.crt", "--auth-supernode-private-key": f"agent-{agent}"}
            for flag, file in files.items():
                require((keys / file).exists(), f"no {file} in {keys}: get it from whoever made the keys (fedpg cert), or give --insecure")
                words += [flag, str(keys / file)]
        self._words, self._folder, self._answer, self._tell, self._secret = words, folder, answer, tell, secret
        self._encrypted = keys is not None
        self._start()

    def _start(self) -> None:
        port, secret = processes.free_port(), secrets.token_bytes(32)
        with open(os.open(self._secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(secret)
        words, authority = [*self._words, "--port", str(port)], None
        if self._encrypted:
            # Also from the SuperNode to this process: messages are nobody else's business on this machine either.
            own = self._folder / "loopback"
            shutil.rmtree(own, ignore_errors=True)
            certificates.make(own, certificates.Request((), 1))
            authority = (own / "ca.crt").read_bytes()
            for flag, file in (("certfile", "server.pem"), ("keyfile", "server.key"), ("ca-certfile", "ca.crt")):
                words += [f"--ssl-{flag}", str(own / file)]
        self._child = Child(words, self._folder / "supernode.log", self._folder / "flower")
        self._executor = Executor(f"127.0.0.1:{port}", secret, self._answer, self._tell, authority)

    def wait(self) -> None:
        """Keeps it running; raises a `UserError` if the server does not let it in."""
        pause, refused_since = FIRST_PAUSE, None
        while True:
            began = time.monotonic()
            while self._child.code() is None:
                time.sleep(0.5)
            refused_since = (refused_since or began) if any(word in self._child.printed() for word in REFUSALS) else None
            if refused_since and time.monotonic() - refused_since > TAKEN_TO_BE_THERE:
                raise UserError(f"the server does not let this agent in: is its key among the server's? See {self._child.log}")
            pause = FIRST_PAUSE if time.monotonic() - began > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
            self._tell(f"the SuperNode ended with code {self._child.code()}: it is started again in {pause:g} s (see {self._child.log})")
            time.sleep(pause)
            self.stop()
            self._start()

    def stop(self) -> None:
        """Ends it and whatever it started."""
        self._executor.stop()
        self._child.stop()

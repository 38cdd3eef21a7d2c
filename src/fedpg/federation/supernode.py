"""An agent's machine: its warm worker, and a SuperNode that brings tasks to it, started again if it dies."""

from __future__ import annotations

import time
from pathlib import Path

from fedpg.engines.flower.names import SOCKET
from fedpg.errors import UserError, require
from fedpg.federation import processes
from fedpg.federation.processes import Child

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a SuperNode that died is started again: twice as long every time."""
REFUSALS = ("2001", "2004", "code: 2", "not authenticated", "UNAUTHENTICATED")


class SuperNode:
    """A running SuperNode.

    Args:
        server: HOST:PORT of the SuperLink.
        agent: the agent's number.
        socket: where its worker listens.
        folder: the agent's own.
        keys: the folder with ca.crt and agent-N; None: neither encryption nor authentication.
    """

    def __init__(self, server: str, agent: int, socket: Path, folder: Path, keys: Path | None) -> None:
        processes.split_address(server)
        words = [processes.command("flower-supernode"), "--superlink", server, "--host", "127.0.0.1"]
        words += ["--node-config", f'agent-id={agent} {SOCKET}="{socket}"']
        if keys is None:
            words += ["--insecure"]
        else:
            files = {"--root-certificates": "ca.crt", "--auth-supernode-private-key": f"agent-{agent}"}
            for flag, file in files.items():
                require((keys / file).exists(), f"no {file} in {keys}: get it from whoever made the keys (fedpg cert), or give --insecure")
                words += [flag, str(keys / file)]
        self._words, self._folder = words, folder
        self._child = self._start()

    def _start(self) -> Child:
        words = [*self._words, "--port", str(processes.free_port())]
        return Child(words, self._folder / "supernode.log", self._folder / "flower")

    def wait(self) -> None:
        """Keeps it running; raises a `UserError` if the server does not let it in."""
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            while self._child.code() is None:
                time.sleep(0.5)
            said = self._child.printed()
            if any(word in said for word in REFUSALS):
                raise UserError(f"the server does not let this agent in: is its key among the server's? See {self._child.log}")
            pause = FIRST_PAUSE if time.monotonic() - began > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
            time.sleep(pause)
            self._child.stop()
            self._child = self._start()

    def stop(self) -> None:
        """Ends it and whatever it started."""
        self._child.stop()

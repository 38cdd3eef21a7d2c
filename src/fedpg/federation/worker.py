"""The warm worker of an agent: environment, JAX and compiled programs stay in one process, behind a socket that only its owner can use."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from fedpg.engines.flower.names import framed, received


class Worker:
    """Answers packets on a Unix socket, in the background, until it is closed.

    Args:
        answer: packet -> packet; never raises.

    Attributes:
        path: where it listens: in a new folder that only this user can enter.
    """

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._folder = tempfile.mkdtemp(prefix="fedpg-")  # mode 0700
        self.path = Path(self._folder) / "worker"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self.path.chmod(0o600)
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stops listening."""
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            if _user_of(connection) != os.getuid():
                return
            try:
                connection.sendall(framed(self._answer(received(connection))))
            except OSError:  # whoever asked has gone; the server decides what that means
                return


def _user_of(connection: socket.socket) -> int:
    """Who is on the other end, as the kernel knows."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1]

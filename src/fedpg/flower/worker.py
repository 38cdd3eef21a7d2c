"""The warm worker of an agent: environment, JAX and compiled programs stay in one process, behind a socket that only its owner can use."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from fedpg.errors import UserError
from fedpg.flower.names import framed, received


class Worker:
    """Answers packets on a Unix socket, in the background, until it is closed.

    Args:
        answer: packet -> packet; never raises.
        path: where it listens.
    """

    def __init__(self, answer: Callable[[bytes], bytes], path: Path) -> None:
        self._answer, self._path = answer, path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path.parent.mkdir(parents=True, exist_ok=True)
        before = os.umask(0o177)  # from its first moment only its owner may use it
        try:
            path.unlink(missing_ok=True)  # of a worker that was killed; who may be here is locked out already
            self._listener.bind(str(path))
        except OSError as error:
            raise UserError(f"cannot listen on {path}: {error.strerror or error}; give a short path in a folder of your own") from None
        finally:
            os.umask(before)
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stops listening."""
        self._listener.close()
        self._path.unlink(missing_ok=True)

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

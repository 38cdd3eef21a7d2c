"""What both sides of Flower call things. Imports next to nothing, because every message starts a process that imports this."""

from __future__ import annotations

import socket

RECORD, PACKET = "fedpg", "packet"
"""Where in a Flower message the packet is."""
SOCKET = "fedpg-socket"
"""The key of the node's configuration that says where the agent's worker listens."""
LENGTH = 8
"""Bytes of the length in front of a packet on the worker's socket."""


def framed(packet: bytes) -> bytes:
    """A packet as it goes over the worker's socket."""
    return len(packet).to_bytes(LENGTH, "big") + packet


def received(connection: socket.socket, most_bytes: int = 1 << 31) -> bytes:
    """The packet that somebody sends over the worker's socket.

    Raises:
        ConnectionError: if it ends too soon, or says that it is too long.
    """
    length = int.from_bytes(_exactly(connection, LENGTH), "big")
    if length > most_bytes:
        raise ConnectionError(f"a packet of {length} bytes")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count > 0:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise ConnectionError("the connection ended in the middle of a packet")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)

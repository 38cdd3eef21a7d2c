"""A passive listener on the loopback interface: all that processes of this machine say to each other over TCP. Needs root."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import socket
import threading
from collections.abc import Iterator

ETHERNET, IP, TCP = 0x0800, 14, 6
LARGEST = 1 << 18
BUFFER = 1 << 26
NETWORK = 0x40000000  # CLONE_NEWNET
FORCED_BUFFER = 33  # SO_RCVBUFFORCE: beyond what the system gives to everybody


class Ear:
    """What was heard, by connection.

    Args:
        space: the network namespace whose loopback interface it is.

    Attributes:
        said: (port of who speaks, port of who listens) -> pieces by their place in the stream.
    """

    def __init__(self, space: str) -> None:
        self.said: dict[tuple[int, int], dict[int, bytes]] = collections.defaultdict(dict)
        self._over = threading.Event()
        try:
            with entered(space):
                self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERNET))
        except PermissionError:
            raise AssertionError("this test listens on the loopback interface, which takes root") from None
        self._socket.setsockopt(socket.SOL_SOCKET, FORCED_BUFFER, BUFFER)
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                frame = self._socket.recv(LARGEST)
                if frame[IP + 9] == TCP:
                    self._take(frame[IP:])

    def _take(self, packet: bytes) -> None:
        begin = (packet[0] & 15) * 4
        end = int.from_bytes(packet[2:4], "big") or len(packet)  # 0: longer than the field can say
        segment = packet[begin:end]
        ports = int.from_bytes(segment[:2], "big"), int.from_bytes(segment[2:4], "big")
        if data := segment[(segment[12] >> 4) * 4 :]:
            self.said[ports][int.from_bytes(segment[4:8], "big")] = data

    def stream(self, ports: tuple[int, int]) -> bytes:
        """What one end of a connection said to the other, in order. Ports that were used again are one after the other."""
        return b"".join(data for _, data in sorted(self.said[ports].items()))

    def everything(self) -> bytes:
        """All streams."""
        return b"\0".join(self.stream(ports) for ports in list(self.said))

    def stop(self) -> None:
        """Listens no more."""
        self._over.set()
        self._thread.join()
        self._socket.close()


@contextlib.contextmanager
def entered(space: str) -> Iterator[None]:
    """This thread is in a network namespace; sockets that it makes stay there."""
    enter = ctypes.CDLL(None, use_errno=True).setns
    with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{space}") as there:
        assert enter(there.fileno(), NETWORK) == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            assert enter(home.fileno(), NETWORK) == 0, os.strerror(ctypes.get_errno())


@contextlib.contextmanager
def listening(space: str) -> Iterator[Ear]:
    """Hears everything until the block ends."""
    ear = Ear(space)
    try:
        yield ear
    finally:
        ear.stop()

"""Two machines and the cable between them, on this one: network namespaces of Linux. Needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator


class Cable:
    """A server's and an agent's network, connected.

    Attributes:
        spaces: the names of the two network namespaces.
        server, agent: what to put before a command so that it runs there.
        host: the server's address, which both reach.
    """

    host = "10.231.77.1"

    def __init__(self) -> None:
        name = f"fedpg-{os.getpid()}"
        self.spaces = (f"{name}-s", f"{name}-a")
        self.server, self.agent = (("ip", "netns", "exec", space) for space in self.spaces)

    def lay(self) -> None:
        """Makes both networks."""
        server, agent = self.spaces
        for space in self.spaces:
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        ip("-n", server, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", agent)
        for space, address in ((server, self.host), (agent, "10.231.77.2")):
            ip("-n", space, "address", "add", f"{address}/24", "dev", "cable")
            ip("-n", space, "link", "set", "cable", "up")

    def cut(self) -> None:
        """At the server's end: what the agent sends vanishes, and nobody tells it."""
        ip("-n", self.spaces[0], "link", "set", "cable", "down")

    def mend(self) -> None:
        """As it was."""
        ip("-n", self.spaces[0], "link", "set", "cable", "up")

    def remove(self) -> None:
        """Both networks, with the cable."""
        for space in self.spaces:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)


def ip(*words: str) -> None:
    """`ip WORDS`."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"this test makes network namespaces, which takes root and iproute2; ip {' '.join(words)}: {done.stderr}"


@contextlib.contextmanager
def cable() -> Iterator[Cable]:
    """Two networks that are gone after the test."""
    made = Cable()
    try:
        made.lay()
        yield made
    finally:
        made.remove()

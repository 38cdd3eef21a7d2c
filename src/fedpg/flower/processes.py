"""Flower's processes: started without telemetry, watched, and stopped together with everything that they start."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from fedpg.errors import UserError, require

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""The environment of Flower's processes, unless the user has set these variables otherwise."""
STOP_SECONDS = 5.0
"""How long a process may take to end before it is killed."""
END_WITH_PARENT = Path(__file__).with_name("end_with_parent.py")


def command(name: str) -> str:
    """The path of Flower's command `name`: beside this Python, or on the PATH."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    require(found is not None, f"there is no {name} beside {sys.executable}, nor on the PATH: pip install 'fedpg[flower]'")
    return found


def environment(home: Path) -> dict[str, str]:
    """The environment of Flower's processes; `home` is their FLWR_HOME."""
    # Flower's commands call each other by name.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return QUIET | dict(os.environ) | {"FLWR_HOME": str(home), "PYTHONUNBUFFERED": "1", "PATH": path}


class Child:
    """A process that ends with this one, together with everything that it starts.

    Args:
        words: the command line.
        log: the file that gets what it prints.
        home: its FLWR_HOME.
    """

    def __init__(self, words: list[str], log: Path, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        with log.open("ab") as file:
            self._log_start = file.tell()
            # In a session of its own: Ctrl-C reaches this process only, which then ends the child in good order.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(END_WITH_PARENT), *words],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment(home),
                start_new_session=True,
            )

    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def printed(self) -> str:
        """What it has printed so far."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def stop(self) -> None:
        """Ends it and everything that it has started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        # Its own children may outlive it for a moment: the whole group is killed.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def is_running(process: int) -> bool:
    """Whether a process runs: it exists and is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def free_port() -> int:
    """A port of this machine on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT in two.

    >>> split_address("0.0.0.0:9092")
    ('0.0.0.0', 9092)
    """
    host, colon, port = address.rpartition(":")
    require(bool(colon and host and port.isdigit() and 0 < int(port) < 65536), f"{address!r} is no address: give HOST:PORT")
    return host, int(port)


def wait_until_open(port: int, child: Child, seconds: float = 60.0) -> None:
    """Returns when a process listens on a port of this machine; raises if `child`, which should, has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if child.code() is not None:
            raise UserError(f"{child.log.stem} ended with code {child.code()}: see {child.log}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.1)
    raise UserError(f"{child.log.stem} does not listen on port {port} after {seconds:g} seconds: see {child.log}")

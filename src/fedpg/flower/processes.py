"""Processes of this machine: Flower's commands as children that end with this process, and what an earlier process has left behind."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fedpg.errors import UserError, require
from fedpg.runs.folder import write_atomically

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""The environment of Flower's processes, unless the user has set these variables otherwise."""
STOP_SECONDS = 5.0
"""How long a process may take to end before it is killed."""
OPEN_SECONDS = 300.0
"""How long a process may take until it listens: on a busy machine, importing alone has taken more than a minute."""
END_WITH_PARENT = Path(__file__).with_name("end_with_parent.py")
RUNNING = "running.json"
"""The file with the processes that work in a folder: name -> identity. It is there only while they run, or if they were killed."""


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


def key_flags(folder: Path | None, files: dict[str, str]) -> list[str]:
    """The flags of a command of Flower's that name the files of its keys; --insecure if there is no folder."""
    for file in files.values() if folder else ():
        require((folder / file).exists(), f"no {file} in {folder}: make a set of keys with fedpg cert, or give --insecure")
    return [word for flag, file in files.items() for word in (flag, str(folder / file))] if folder else ["--insecure"]


def identity(process: int) -> list[Any] | None:
    """What tells a process from every other, also from a later one with its number: number, start time, boot. None if it does not run."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    return None if fields[0] == "Z" else [process, fields[19], boot]


class Running:
    """The record of the processes that work in a folder, so that the next one can end what a killed one has left behind.

    Args:
        folder: where the record is; whoever makes one must hold the folder's lock.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._known = folder / RUNNING, dict[str, list[Any]]()
        try:
            before = dict(json.loads(self._path.read_bytes()))
        except (OSError, ValueError, TypeError):
            before = {}
        self.killed = bool(before)
        """Whether the last process ended without taking back its record."""
        self.ended = [name for name, who in before.items() if _end(who)]
        """The names of the processes of it that still ran, and were ended."""
        self.add("fedpg", os.getpid())

    def add(self, name: str, process: int) -> None:
        """Records a process of ours, before it can be left behind."""
        self._known[name] = identity(process)
        write_atomically(self._path, json.dumps(self._known).encode())

    def clear(self) -> None:
        """Takes the record back: everything has ended in good order."""
        self._path.unlink(missing_ok=True)


def _end(who: Any) -> bool:
    """Ends the process with an identity, and no other; returns whether it ran."""
    found = isinstance(who, list) and len(who) == 3 and isinstance(who[0], int) and identity(who[0]) == who
    for number in (signal.SIGTERM, signal.SIGKILL) if found else ():
        with contextlib.suppress(OSError):
            os.kill(who[0], number)
        end = time.monotonic() + STOP_SECONDS
        while identity(who[0]) == who and time.monotonic() < end:
            time.sleep(0.05)
    return found


def with_parent(words: list[str], parting: int) -> list[str]:
    """The command line `words` for a process that gets the signal `parting` when the thread that starts it ends."""
    return [sys.executable, "-I", "-S", str(END_WITH_PARENT), str(int(parting)), *words]


def write_secret(path: Path, secret: bytes = b"") -> bytes:
    """Writes a secret, or a new one of 32 bytes, to a file that only this user can read; all of it or nothing."""
    secret, temporary = secret or secrets.token_bytes(32), path.with_name(f".{path.name}.tmp")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(secret)
    temporary.replace(path)
    return secret


class Child:
    """A process that ends with this one, together with everything that it starts. Only the main thread may make one.

    Args:
        words: the command line.
        log: the file that gets what it prints.
        home: its FLWR_HOME.
        running: where it is recorded; None: nowhere.
        parting: the signal that it gets when this process is killed.
    """

    def __init__(self, words: list[str], log: Path, home: Path, running: Running | None = None, parting: int = signal.SIGTERM) -> None:
        home.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        with log.open("ab") as file:
            self._log_start = self._log_read = file.tell()
            # In a session of its own: Ctrl-C reaches this process only, which then ends the child in good order.
            streams = {"stdout": file, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
            self._process = subprocess.Popen(with_parent(words, parting), **streams, env=environment(home), start_new_session=True)
        if running:
            running.add(log.stem, self._process.pid)

    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def printed(self) -> str:
        """What it has printed so far."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def news(self) -> str:
        """What it has printed since the last call."""
        with self.log.open("rb") as file:
            file.seek(self._log_read)
            data = file.read()
        self._log_read += len(data)
        return data.decode(errors="replace")

    def stop(self) -> None:
        """Ends it, and kills the rest of its process group."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)


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


def wait_until_open(port: int, child: Child, seconds: float = OPEN_SECONDS) -> None:
    """Returns when a process listens on a port of this machine; raises if `child`, which should, has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if child.code() is not None:
            raise UserError(f"{child.log.stem} ended with code {child.code()}: see {child.log}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.1)
    raise UserError(f"{child.log.stem} does not listen on port {port} after {seconds:g} seconds: see {child.log}")

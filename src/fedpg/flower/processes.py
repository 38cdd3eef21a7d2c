"""Flower's processes: the SuperLink of a server and the SuperNode of an agent, started, watched, and stopped with all they start."""

import contextlib
import dataclasses
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fedpg.errors import UserError, require
from fedpg.flower.flwr_private import AnswerPacket, TaskRunner
from fedpg.flower.keys import agent_keys, flower_key, make_keys
from fedpg.flower.proxy import Proxy
from fedpg.flower.server_app import OPTIONS, PROCESS, Rules
from fedpg.flower.status import STATUS_FILE, read_status
from fedpg.runs.folder import RunFolder, write_atomically

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""The environment of Flower's processes, unless the user has set these variables otherwise."""
STOP_SECONDS = 5.0
"""How long a process may take to end before it is killed."""
END_WITH_PARENT = Path(__file__).with_name("end_with_parent.py")
APP = Path(__file__).parent / "app"
"""The Flower app, for `flwr run`."""
CONNECTION = "fedpg"
"""The name of our SuperLink in Flower's configuration."""
TRIES = 5
"""How often a ServerApp that died is restarted without a finished round in between."""
START_SECONDS = 120.0
"""How long a ServerApp may take to start."""
REGISTERED = "registered.pem"
"""The file with the keys that are in the SuperLink's database."""
RUN_ID = "flower-run"
"""The file with Flower's number of the run."""
PARALLEL = 4
"""Flower's commands that run side by side."""
POLL = 0.5
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds before a SuperNode that died is restarted; the pause doubles every time."""
REFUSALS = ("[code: 2001]", "[code: 2004]")
"""Printed by a SuperNode that is refused: its key is unknown, or a node with its key still counts as connected."""
REFUSED_SECONDS = 100.0
"""How long a refusal may mean the second: Flower notices only after 60 s that a node was killed."""


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
            streams = {"stdout": file, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
            command = [sys.executable, "-I", "-S", str(END_WITH_PARENT), *words]
            self._process = subprocess.Popen(command, **streams, env=environment(home), start_new_session=True)

    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def printed(self) -> str:
        """What it has printed so far."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def stop(self) -> None:
        """Ends it, and kills the rest of its process group."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)


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


class SuperLink:
    """A running SuperLink with our ServerApp on it.

    Args:
        config: the run's TOML file.
        out: the run folder.
        address: HOST:PORT where agents connect.
        keys: the folder with the server's certificate and the agents' public keys; None: neither encryption nor authentication.
        rules: how agents are treated.
        resume: whether the run continues from its checkpoint.
    """

    def __init__(self, config: Path, out: Path, address: str, keys: Path | None, rules: Rules, resume: bool) -> None:
        self._folder, self._keys = RunFolder(out).federation, keys
        host, port = split_address(address)
        self._home, self._port, self._proxy = self._folder / "flower", free_port(), None
        for stale in (PROCESS, STATUS_FILE):
            (self._folder / stale).unlink(missing_ok=True)
        self._child = Child(self._command(), self._folder / "superlink.log", self._home)
        self._tries, self._round = 0, -1
        try:
            paths = {"config": str(config.resolve()), "out": str(out.resolve()), "keys": str(keys.resolve()) if keys else None}
            write_atomically(self._folder / OPTIONS, json.dumps(paths | {"rules": dataclasses.asdict(rules)}).encode())
            wait_until_open(self._port, self._child)
            self._write_connection()
            known = self._register_keys()
            self._proxy = Proxy(host, port, self._port, keys, known, self._folder / "proxy.log")
            self._submit(resume)
        except BaseException:
            self.stop()
            raise

    def _command(self) -> list[str]:
        # Only reachable from this machine: see `fedpg.flower.proxy`.
        words = [command("flower-superlink"), "--host", "127.0.0.1", "--port", str(self._port)]
        words += ["--database", str(self._folder / "superlink.db"), "--disable-runtime-dependency-installation"]
        files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.pem", "--ssl-keyfile": "server.key"}
        return words + key_flags(self._keys, files) + (["--enable-supernode-auth"] if self._keys else [])

    def _write_connection(self) -> None:
        """Tells Flower's own commands how to reach this SuperLink."""
        secure = f"root-certificates = {json.dumps(str((self._keys / 'ca.crt').resolve()))}" if self._keys else "insecure = true"
        text = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "127.0.0.1:{self._port}"\n{secure}\n'
        self._home.mkdir(parents=True, exist_ok=True)
        (self._home / "config.toml").write_text(text + "\n[superlink.local]\noptions.num-supernodes = 1\n")

    def _flwr(self, *words: str) -> str:
        """What `flwr WORDS` prints."""
        flwr, home = command("flwr"), environment(self._home)
        done = subprocess.run([flwr, *words], env=home, capture_output=True, text=True, timeout=120, check=False)
        printed = done.stdout + done.stderr
        with (self._folder / "flwr.log").open("a") as file:
            file.write(f"$ flwr {' '.join(words)}\n{printed}\n")
        return printed

    def _register_keys(self) -> frozenset[bytes]:
        """Registers the agents' public keys with the SuperLink, once each; returns them."""
        if self._keys is None:
            return frozenset()
        keys = {flower_key(path): path for path in agent_keys(self._keys).values()}
        path = self._folder / REGISTERED
        known = path.read_text() if path.exists() else ""
        new = {key: file for key, file in keys.items() if key.decode() not in known}
        with ThreadPoolExecutor(PARALLEL) as pool:
            replies = list(pool.map(lambda file: self._flwr("supernode", "register", str(file), CONNECTION), new.values()))
        for file, printed in zip(new.values(), replies, strict=True):
            accepted = "success" in printed.lower() or "already" in printed.lower()
            require(accepted, f"Flower did not accept the key {file}: see {self._folder / 'flwr.log'}")
        write_atomically(path, (known + b"".join(new).decode()).encode())
        return frozenset(keys)

    def _submit(self, resume: bool) -> None:
        """Starts our ServerApp."""
        (self._folder / PROCESS).unlink(missing_ok=True)
        before = self._folder / RUN_ID
        if before.exists():
            # A SuperNode with half a message of a dead ServerApp waits for the rest until that run is stopped.
            self._flwr("stop", before.read_text(), CONNECTION, "--format", "json")
        values = {"options": str((self._folder / OPTIONS).resolve()), "resume": resume}
        config = " ".join(f"{name}={json.dumps(value)}" for name, value in values.items())
        printed = self._flwr("run", str(APP), CONNECTION, "--format", "json", "-c", config)
        require('"success": true' in printed, f"Flower did not accept the run: see {self._folder / 'flwr.log'}")
        if found := re.search(r'"run-id": "(\d+)"', printed):
            write_atomically(before, found[1].encode())
        self._submitted = time.monotonic()

    def wait(self) -> None:
        """Returns when the run has finished; raises a `UserError` that says why it has not."""
        while True:
            time.sleep(POLL)
            status = read_status(self._folder / STATUS_FILE)
            if status is not None and status.phase == "finished":
                return
            if status is not None and status.phase == "failed":
                raise UserError(status.state.removeprefix("failed: "))
            if self._child.code() is not None:
                raise UserError(f"the SuperLink ended with code {self._child.code()}: see {self._child.log}; continue with --resume")
            process, starting = self._app_process(), time.monotonic() - self._submitted < START_SECONDS
            if not (starting if process is None else is_running(process)):
                self._restart(status.round if status else -1)

    def _app_process(self) -> int | None:
        """The process of our ServerApp; None while it is starting."""
        with contextlib.suppress(OSError, ValueError):
            return int((self._folder / PROCESS).read_text())
        return None

    def _restart(self, round: int) -> None:
        self._tries = 0 if round > self._round else self._tries + 1
        self._round = round
        require(self._tries < TRIES, f"the ServerApp died {TRIES} times in round {round}: see {self._child.log}")
        self._submit(True)

    def stop(self) -> None:
        """Ends all processes. Our ServerApp runs in a separate session and would outlive a SuperLink that was killed."""
        if self._proxy:
            self._proxy.stop()
        self._child.stop()
        if (process := self._app_process()) is not None:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)


class SuperNode:
    """A running SuperNode.

    Args:
        server: HOST:PORT of the server.
        agent: the agent's number.
        answer: packet -> packet; never raises.
        folder: the agent's own.
        keys: the folder with ca.crt and agent-I; None: neither encryption nor authentication.
        tell: called with one line when it has to be restarted.
    """

    def __init__(self, server: str, agent: int, answer: AnswerPacket, folder: Path, keys: Path | None, tell: Callable[[str], None]) -> None:
        split_address(server)
        self._secret_file = folder / "supernode.secret"
        words = [command("flower-supernode"), "--superlink", server, "--host", "127.0.0.1"]
        # It starts no process of its own: `TaskRunner`, which knows the secret, performs its tasks.
        words += ["--isolation", "process", "--superexec-auth-secret-file", str(self._secret_file)]
        words += key_flags(keys, {"--root-certificates": "ca.crt", "--auth-supernode-private-key": f"agent-{agent}"})
        self._words, self._folder, self._answer, self._tell, self._encrypted = words, folder, answer, tell, keys is not None
        self._start()

    def _start(self) -> None:
        port, secret = free_port(), secrets.token_bytes(32)
        with open(os.open(self._secret_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(secret)
        words, authority = [*self._words, "--port", str(port)], None
        if self._encrypted:
            # TLS also between the SuperNode and this process: other users of the machine must not read messages.
            own = self._folder / "loopback"
            shutil.rmtree(own, ignore_errors=True)
            make_keys(own, (), 1)
            authority = (own / "ca.crt").read_bytes()
            words += key_flags(own, {"--ssl-certfile": "server.pem", "--ssl-keyfile": "server.key", "--ssl-ca-certfile": "ca.crt"})
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

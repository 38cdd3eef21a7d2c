"""The SuperNode of an agent: started, watched, restarted, and stopped."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from fedpg.errors import UserError
from fedpg.flower.flwr_private import AnswerPacket, TaskRunner
from fedpg.flower.keys import make_keys
from fedpg.flower.processes import Child, Running, command, free_port, key_flags, split_address, write_secret

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds before a SuperNode that died is restarted; the pause doubles every time."""
PARTING_SECONDS = 2.0
"""How long the last answer may take to leave."""
LEFTOVER = "Ignoring reply message"
"""Printed by a SuperNode that had an answer to a run that is over. It sends one answer per message that it gets, so from then on every
answer may be one message late."""
REFUSALS = ("[code: 2001]", "[code: 2004]")
"""Printed by a SuperNode that is refused: its key is unknown, or a node with its key still counts as connected."""
REFUSED_SECONDS = 100.0
"""How long a refusal may mean the second: Flower notices only after 60 s that a node was killed."""


class SuperNode:
    """A running SuperNode.

    Args:
        server: HOST:PORT of the server.
        agent: the agent's number.
        answer: packet -> packet; never raises.
        folder: the agent's own.
        keys: the folder with ca.crt and agent-I; None: neither encryption nor authentication.
        tell: called with one line when it has to be restarted.
        running: where its process is recorded.
    """

    def __init__(
        self,
        server: str,
        agent: int,
        answer: AnswerPacket,
        folder: Path,
        keys: Path | None,
        tell: Callable[[str], None],
        running: Running | None = None,
    ) -> None:
        split_address(server)
        self._secret_file = folder / "supernode.secret"
        words = [command("flower-supernode"), "--superlink", server, "--host", "127.0.0.1"]
        # It starts no process of its own: `TaskRunner`, which knows the secret, performs its tasks.
        words += ["--isolation", "process", "--superexec-auth-secret-file", str(self._secret_file)]
        words += key_flags(keys, {"--root-certificates": "ca.crt", "--auth-supernode-private-key": f"agent-{agent}"})
        self._words, self._folder, self._answer, self._tell, self._encrypted = words, folder, answer, tell, keys is not None
        self._running = running
        self._start()

    def _start(self) -> None:
        port, secret = free_port(), write_secret(self._secret_file)
        words, authority = [*self._words, "--port", str(port)], None
        if self._encrypted:
            # TLS also between the SuperNode and this process: other users of the machine must not read messages.
            own = self._folder / "loopback"
            shutil.rmtree(own, ignore_errors=True)
            make_keys(own, (), 1)
            authority = (own / "ca.crt").read_bytes()
            words += key_flags(own, {"--ssl-certfile": "server.pem", "--ssl-keyfile": "server.key", "--ssl-ca-certfile": "ca.crt"})
        self._child = Child(words, self._folder / "supernode.log", self._folder / "flower", self._running)
        self._runner = TaskRunner(f"127.0.0.1:{port}", secret, self._answer, self._tell, authority)

    def wait(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Keeps it running until `is_over`; raises a `UserError` if the server refuses it."""
        pause, refused_since = FIRST_PAUSE, None
        while True:
            began = time.monotonic()
            while self._child.code() is None:
                if is_over():
                    return time.sleep(PARTING_SECONDS)
                if LEFTOVER in self._child.news():
                    self._tell("the SuperNode held an answer to an earlier run: restarting it")
                    self.stop()
                    self._start()
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

"""Does a SuperNode's tasks without starting a process for each, and without running code that the server sent.

Flower's way is to start a process for every message, which installs the app that came with the run and executes it: with the rights of
the agent, whatever the app is. A SuperNode with `--isolation process` starts nothing; it leaves its tasks to whoever asks for them on its
local port and knows its secret. That is this: it takes the packet out of a message, puts the answer into a reply, and never looks
at the app. So a server can ask an agent for what `fedpg.flower.tasks` has, and for nothing else.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.interceptors.http import SuperExecAuthHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedpg.flower.names import PACKET, RECORD

POLL = 0.2
"""Seconds between questions whether there is a task."""
PROTECTED = frozenset({"/flwr.proto.Runtime/AcquireTask"})
"""What the SuperNode wants the secret for; all the rest needs the token that comes with a task."""


class Executor:
    """Does tasks in the background until `stop`.

    Args:
        address: HOST:PORT of the SuperNode's own port (its --host and --port).
        secret: the content of the file that the SuperNode has as --superexec-auth-secret-file.
        answer: packet -> packet; never raises.
        tell: called with one line when a task could not be done.
        authority: the certificate behind that of the SuperNode's own port, as PEM; None: no encryption.
    """

    def __init__(
        self,
        address: str,
        secret: bytes,
        answer: Callable[[bytes], bytes],
        tell: Callable[[str], None],
        authority: bytes | None = None,
    ) -> None:
        self._address, self._secret, self._answer, self._tell, self._authority = address, secret, answer, tell, authority
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="executor", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Takes no more tasks; waits so long for the one at hand."""
        self._stopped.set()
        self._thread.join(seconds)

    def _client(self, proof: object) -> RuntimeHttpClient:
        # Without Flower's retries: a SuperNode that is gone takes its tasks along, and on a refusal they interrupt the whole process.
        proofs = [RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), proof]
        plain = self._authority is None
        return RuntimeHttpClient.from_server_address(self._address, plain, self._authority, proofs, retry_invoker=None)

    def _run(self) -> None:
        asking = self._client(SuperExecAuthHttpInterceptor(master_secret=self._secret, protected_methods=PROTECTED))
        at_hand: _Work | None = None
        while not self._stopped.wait(POLL):
            try:
                found = asking.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
            except Exception:  # not up yet, or going down: whoever started it looks after that
                continue
            if found.HasField("task") and found.token:
                if at_hand:
                    at_hand.leave()
                at_hand = _Work(self._client(RuntimeTokenHttpInterceptor(found.token)), self._answer, self._tell)
        if at_hand:
            at_hand.leave()
        asking.close()


class _Work(threading.Thread):
    """One task, done beside the questions for the next.

    A SuperNode hands out a task before it has the content of its message, and forgets to take it back when the content does not
    come, as when a SuperLink died in between. It works on one message after the other; so whoever has a new task from it may
    leave one whose content is still missing.
    """

    def __init__(self, client: RuntimeHttpClient, answer: Callable[[bytes], bytes], tell: Callable[[str], None]) -> None:
        super().__init__(name="task", daemon=True)
        self._to_node, self._answer, self._tell = client, answer, tell
        self._begun = self._left = False
        self.start()

    def leave(self) -> None:
        """Returns when it is done; at once if it has not begun, which it then never will."""
        if self._begun:
            self.join()
        self._left = True
        self._to_node.close()

    def run(self) -> None:
        try:
            self._do()
        except Exception as error:  # the run has ended meanwhile, or the SuperNode has; the next task may still work
            why = "its content did not come" if self._left else f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            self._tell(f"a task could not be done: {why}")

    def _do(self) -> None:
        client, context, status = self._to_node, None, SubStatus.FAILED
        heartbeat = HeartbeatSender(self._alive)
        try:
            heartbeat.start()
            message, context, _, _ = pull_task_input(client)
            self._begun = True
            push_message(client, self._reply(message), context)
            status = SubStatus.COMPLETED
        finally:
            if heartbeat.is_running:
                heartbeat.stop()
            if not self._left:
                push_task_output(client, context, status, "" if status == SubStatus.COMPLETED else "not done")
                client.close()

    def _alive(self) -> bool:
        """Flower's own would interrupt this whole process for a task that the SuperNode has given up."""
        with contextlib.suppress(Exception):
            self._to_node.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        return True

    def _reply(self, message: Message) -> Message:
        """Always one: a SuperNode waits for it before it takes the next task."""
        try:
            packet = message.content[RECORD][PACKET]
            content = RecordDict({RECORD: ConfigRecord({PACKET: self._answer(packet)})})
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
        return Message(content, reply_to=message)

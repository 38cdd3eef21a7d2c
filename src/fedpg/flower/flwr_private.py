"""Everything that uses private modules of flwr: performing a SuperNode's and a SuperLink's tasks in this process. Written for flwr 1.41.

Flower starts a process for every message, which installs the app that came with the run and executes it with the agent's rights. A
SuperNode with `--isolation process` starts nothing: it leaves its tasks to a process that asks for them on its local port and knows
its secret. `TaskRunner` is that process. It takes the packet out of a message, puts the answer into a reply, and never opens the app.
So a server can ask an agent for the tasks of `fedpg.flower.protocol` and for nothing else. `OpenRun` does the same for the server: the
one task of a run, its server app, is performed by `fedpg serve` itself. This saves two processes, and none can outlive it.

What each private name is needed for:

    RuntimeHttpClient, AcquireTaskRequest, TaskType       ask the SuperNode for a task
    SuperExecAuthHttpInterceptor                          prove that we know its secret
    RuntimeTokenHttpInterceptor                           prove that a task is ours, with the token that came with it
    RuntimeVersionHttpInterceptor                         say which version of Flower asks
    pull_task_input, push_message, push_task_output       take the message of a task, hand back its reply, end it
    HeartbeatSender, SendTaskHeartbeatRequest             show that a long task is being worked on
    SubStatus, ErrorCode                                  how a task ended
    HttpGrid, TaskIdentity, PullTaskInputRequest, RetryInvoker, run_from_proto, PushTaskOutputRequest
                                                          be the server app of a run, and wait for a SuperLink that stutters

What else depends on the version, without an import: the names of the Fleet API's calls and of the key's header (`proxy.py`), the codes
of a refusal and command lines and their output (`processes.py`).
"""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import run_from_proto
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest, PushTaskOutputRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.interceptors.http import SuperExecAuthHttpInterceptor
from flwr.supercore.retry import RetryInvoker, constant
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedpg.errors import one_line
from fedpg.flower.protocol import PACKET, RECORD

POLL = 0.2
"""Seconds between questions for a task."""
SECRET_CALLS = frozenset({"/flwr.proto.Runtime/AcquireTask"})
"""Calls for which the SuperNode wants the secret; all others need the token that comes with a task."""

RETRY_SECONDS = 90.0
"""How long a SuperLink that runs may fail to answer before the run on it is given up."""
START_SECONDS = 60.0
"""How long a run that was submitted may take to appear."""

AnswerPacket = Callable[[bytes], bytes]
"""From a packet to the packet that answers it; never raises."""


class RunLost(Exception):
    """The SuperLink does not serve the run any more: it ended, hangs, or counts the run as failed."""


class OpenRun:
    """A run on a SuperLink whose server app is this process, from its construction until `close`.

    Args:
        address: HOST:PORT of the SuperLink.
        secret: the content of the file that the SuperLink has as --superexec-auth-secret-file.
        authority: the certificate, as PEM, that signed the SuperLink's; None: no encryption.
        run: Flower's number of the run.
        is_over: whether waiting for the SuperLink is useless: it has ended, or this process is about to.
    """

    def __init__(self, address: str, secret: bytes, authority: bytes | None, run: int, is_over: Callable[[], bool]) -> None:
        self._address, self._authority, self._is_over = address, authority, is_over
        asking = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=SECRET_CALLS)
        version, end = RuntimeVersionHttpInterceptor(component_name="flwr-superexec"), time.monotonic() + START_SECONDS
        proofs, retries = [version, asking], self._retries()
        client = RuntimeHttpClient.from_server_address(address, authority is None, authority, proofs, retry_invoker=retries)
        try:
            while not is_over() and time.monotonic() < end:
                found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
                if found.HasField("task") and found.token:
                    if self._open(found.token) == run:
                        return
                    self.close(False)  # of an earlier process, which was killed before it took it
                time.sleep(POLL)
        except (httpx.HTTPError, ValueError) as error:
            raise RunLost(str(error)) from error
        finally:
            client.close()
        raise RunLost("the SuperLink does not hand over the run")

    def _retries(self) -> RetryInvoker:
        # Flower's own would interrupt the whole process on a refusal, and never give up.
        return RetryInvoker(
            lambda: constant(POLL), httpx.TransportError, None, RETRY_SECONDS, jitter=None, should_giveup=lambda error: self._is_over()
        )

    def _open(self, token: str) -> int:
        """Makes this process the server app that a token is for; the number of its run."""
        self._grid = HttpGrid(self._address, self._authority is None, self._authority, token=token)
        self._grid._retry_invoker = self._retries()
        given = self._grid._runtime_client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = given.task_id, given.run.run_id, given.context.node_id
        self._grid.set_run(run_from_proto(given.run))
        self._heartbeat = HeartbeatSender(self._send_heartbeat)
        self._heartbeat.start()
        return given.run.run_id

    def get_nodes(self) -> Any:
        """The SuperNodes that are connected."""
        return self._call(self._grid.get_nodes)

    def push_messages(self, messages: list[Message]) -> Any:
        """Sends messages; their ids, None where one could not be sent."""
        return self._call(self._grid.push_messages, messages)

    def pull_messages(self, ids: list[str]) -> Any:
        """The replies that have come to the messages `ids`."""
        return self._call(self._grid.pull_messages, ids)

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        if self._is_over():
            raise RunLost("stopped")
        try:
            return function(*args)
        except (httpx.HTTPError, ValueError) as error:
            raise RunLost(str(error)) from error

    def _send_heartbeat(self) -> bool:
        # Flower's own function would interrupt this process; what has become of the run is seen by the next call.
        with contextlib.suppress(Exception):
            self._grid._runtime_client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        return True

    def close(self, done: bool) -> None:
        """Ends the run on the SuperLink, if that still runs."""
        self._heartbeat.stop()
        self._grid._retry_invoker.max_tries = 1
        status = SubStatus.COMPLETED if done else SubStatus.FAILED
        with contextlib.suppress(Exception):
            self._grid._runtime_client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details="" if done else "stopped"))
        self._grid.close()


class TaskRunner:
    """Performs a SuperNode's tasks in the background until `stop`.

    Args:
        address: HOST:PORT of the SuperNode's own port (its --host and --port).
        secret: the content of the file that the SuperNode has as --superexec-auth-secret-file.
        answer: packet -> packet; never raises.
        tell: called with one line when a task fails.
        authority: the certificate, as PEM, that signed that of the SuperNode's own port; None: no encryption.
    """

    def __init__(
        self, address: str, secret: bytes, answer: AnswerPacket, tell: Callable[[str], None], authority: bytes | None = None
    ) -> None:
        self._address, self._secret, self._answer, self._tell, self._authority = address, secret, answer, tell, authority
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="task runner", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Takes no more tasks, and waits up to `seconds` for the current one."""
        self._stopped.set()
        self._thread.join(seconds)

    def _client(self, proof: object) -> RuntimeHttpClient:
        # Without Flower's retries: on a refusal they interrupt the whole process, and a SuperNode that ends takes its tasks along.
        interceptors = [RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), proof]
        insecure = self._authority is None
        return RuntimeHttpClient.from_server_address(self._address, insecure, self._authority, interceptors, retry_invoker=None)

    def _run(self) -> None:
        client = self._client(SuperExecAuthHttpInterceptor(master_secret=self._secret, protected_methods=SECRET_CALLS))
        current: _TaskThread | None = None
        while not self._stopped.wait(POLL):
            try:
                found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
            except Exception:  # the SuperNode is starting or ending, which `processes.py` watches
                continue
            if found.HasField("task") and found.token:
                if current:
                    current.finish()
                current = _TaskThread(self._client(RuntimeTokenHttpInterceptor(found.token)), self._answer, self._tell)
        if current:
            current.finish()
        client.close()


class _TaskThread(threading.Thread):
    """One task, performed while the next one is asked for.

    A SuperNode hands out a task before it has the content of its message. If the content never comes, as when the SuperLink dies in
    between, it does not take the task back. It handles one message after the other, so when it hands out a new task, an old one
    whose content is still missing can be abandoned.
    """

    def __init__(self, client: RuntimeHttpClient, answer: AnswerPacket, tell: Callable[[str], None]) -> None:
        super().__init__(name="task", daemon=True)
        self._client, self._answer, self._tell = client, answer, tell
        self._has_content = self._abandoned = False
        self.start()

    def finish(self) -> None:
        """Waits for the task if its content has come, and abandons it otherwise."""
        if self._has_content:
            self.join()
        self._abandoned = True
        self._client.close()

    def run(self) -> None:
        """Takes the message, answers it, hands the reply back."""
        client, context, status, heartbeat = self._client, None, SubStatus.FAILED, HeartbeatSender(self._send_heartbeat)
        try:
            try:
                heartbeat.start()
                message, context, _, _ = pull_task_input(client)
                self._has_content = True
                push_message(client, self._reply(message), context)
                status = SubStatus.COMPLETED
            finally:
                if heartbeat.is_running:
                    heartbeat.stop()
                if not self._abandoned:
                    push_task_output(client, context, status, "" if status == SubStatus.COMPLETED else "failed")
                    client.close()
        except Exception as error:  # the run or the SuperNode has ended; the next task may still work
            why = "its content did not come" if self._abandoned else f"{type(error).__name__}: {error}"
            self._tell(one_line(f"a task failed: {why}"))

    def _send_heartbeat(self) -> bool:
        # Flower's own function would interrupt this process for a task that the SuperNode has given up.
        with contextlib.suppress(Exception):
            self._client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        return True

    def _reply(self, message: Message) -> Message:
        """The reply to a message, always: a SuperNode waits for it before it takes the next task."""
        try:
            content = RecordDict({RECORD: ConfigRecord({PACKET: self._answer(message.content[RECORD][PACKET])})})
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
        return Message(content, reply_to=message)

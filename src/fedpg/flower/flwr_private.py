"""What uses private modules of flwr at the server: `fedpg serve` is its own server app and its own `flwr`. Written for flwr 1.41.

Flower starts a process for the server app of a run, and `flwr` is a process for every command. `OpenRun` performs the one task of a
run in this process, and `Control` makes the calls of `flwr`: no process is left that could outlive ours, but the SuperLink. The
agent's half is `fedpg.flower.fleet`.

What each private name is needed for:

    RuntimeHttpClient, AcquireTaskRequest, TaskType       ask the SuperLink for the task of a run
    SuperExecAuthHttpInterceptor                          prove that we know its secret
    RuntimeVersionHttpInterceptor                         say which version of Flower asks
    HeartbeatSender, SendTaskHeartbeatRequest             show that the run is being worked on
    SubStatus                                             how it ended
    RuntimeTokenHttpInterceptor, TaskIdentity, Node and the requests of `runtime_pb2`
                                                          be the server app of a run
    the names from `inflatable_*`, message_to_proto, remove_content_from_message
                                                          take messages apart and put them together
    RetryInvoker                                          wait for a SuperLink that stutters
    ControlHttpClient, RegisterNodeRequest, StartRunRequest, StopRunRequest, build_fab_from_disk, Fab, fab_to_proto
                                                          register keys, start and stop runs

What else depends on the version, without an import: the names of the Fleet API's calls and of the key's header (`proxy.py`), and the
flags of `flower-superlink`.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Message
from flwr.app.message.message import remove_content_from_message
from flwr.cli.build import build_fab_from_disk
from flwr.common.constant import SubStatus
from flwr.common.serde import fab_to_proto, message_to_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest, StopRunRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    GetNodesRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushAppMessagesRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPushError,
    ObjectUnavailableError,
    inflate_object_from_contents,
)
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.interceptors.http import SuperExecAuthHttpInterceptor
from flwr.supercore.retry import RetryInvoker, constant
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity

POLL = 0.2
"""Seconds between questions for something that is about to come."""
SECRET_CALLS = frozenset({"/flwr.proto.Runtime/AcquireTask"})
"""Calls for which the SuperLink wants the secret; all others need the token that comes with a task."""

IN_USE = 412
"""What a SuperLink answers when a key is registered again."""
RETRY_SECONDS = 90.0
"""How long a SuperLink that runs may fail to answer before the run on it is given up."""
START_SECONDS = 60.0
"""How long a run that was submitted may take to appear."""


class RunLost(Exception):
    """The SuperLink does not serve the run any more: it ended, hangs, or counts the run as failed."""


class Control:
    """Flower's Control API on a SuperLink of this machine.

    Args:
        address: HOST:PORT of the SuperLink.
        authority: the certificate, as PEM, that signed the SuperLink's; None: no encryption.
    """

    def __init__(self, address: str, authority: bytes | None) -> None:
        version = RuntimeVersionHttpInterceptor(component_name="flwr CLI")
        self._client = ControlHttpClient.from_server_address(address, authority is None, authority, [version])

    def register(self, key: bytes) -> None:
        """Lets the SuperNode with this public key in; nothing changes if it was let in before."""
        try:
            self._client.RegisterNode(RegisterNodeRequest(public_key=key))
        except httpx.HTTPStatusError as error:
            if error.response.status_code != IN_USE:
                raise

    def start_run(self, app: Path) -> int:
        """Starts a run of the app in a folder; its number."""
        data = build_fab_from_disk(app)
        fab = Fab(hashlib.sha256(data).hexdigest(), data, {})
        return self._client.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id

    def stop_run(self, number: int) -> None:
        """Stops a run, unless it has ended or the SuperLink does not know it."""
        with contextlib.suppress(httpx.HTTPStatusError):
            self._client.StopRun(StopRunRequest(run_id=number))

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()


@contextlib.contextmanager
def opened(address: str, authority: bytes | None) -> Iterator[Control]:
    """The Control API of a SuperLink; raises `RunLost` if that does not answer."""
    control = Control(address, authority)
    try:
        yield control
    except (httpx.HTTPError, ValueError) as error:
        raise RunLost(str(error)) from error
    finally:
        control.close()


class OpenRun:
    """A run on a SuperLink whose server app is this process, from its construction until `close`.

    Args:
        address: HOST:PORT of the SuperLink.
        secret: the content of the file that the SuperLink has as --superexec-auth-secret-file.
        authority: the certificate, as PEM, that signed the SuperLink's; None: no encryption.
        run: Flower's number of the run.
        is_over: whether waiting for the SuperLink is useless: it has ended, or this process is about to.

    Attributes:
        asked: `time.monotonic()` when the SuperLink was asked what it has not answered yet; None if it has answered everything.
    """

    def __init__(self, address: str, secret: bytes, authority: bytes | None, run: int, is_over: Callable[[], bool]) -> None:
        self._address, self._authority, self._is_over, self.asked = address, authority, is_over, None
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
        proofs = [RuntimeVersionHttpInterceptor(component_name="flwr-serverapp"), RuntimeTokenHttpInterceptor(token)]
        secure = (self._authority is None, self._authority)
        self._client = RuntimeHttpClient.from_server_address(self._address, *secure, proofs, retry_invoker=self._retries())
        given = self._client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = given.task_id, given.run.run_id, given.context.node_id
        self._node, self._run, self._coming = (
            Node(node_id=given.context.node_id),
            given.run.run_id,
            dict[str, tuple[Any, dict[str, bytes]]](),
        )
        self._heartbeat = HeartbeatSender(self._send_heartbeat)
        self._heartbeat.start()
        return given.run.run_id

    def get_nodes(self) -> Any:
        """The agents' nodes that are connected."""
        return self._call(lambda: self._client.GetNodes(GetNodesRequest()).nodes)

    def push_messages(self, messages: list[Message]) -> list[str]:
        """Sends messages; their ids, empty where one could not be sent."""
        return self._call(self._push, messages)

    def _push(self, messages: list[Message]) -> list[str]:
        asked, objects = PushAppMessagesRequest(), {}
        with no_object_id_recompute():
            for message in messages:
                message.metadata.__dict__["_message_id"] = message.object_id
                asked.messages_list.append(message_to_proto(remove_content_from_message(message)))
                asked.message_object_trees.append(get_object_tree(message))
                objects |= get_all_nested_objects(message)
            sent = self._client.PushMessages(asked)
            push = make_push_object_fn_protobuf(self._client.PushObject, self._node, self._run, sent.session_id)
            for name in sent.objects_to_push:
                push(name, objects[name].deflate())
        return list(sent.message_ids)

    def pull_messages(self, ids: list[str]) -> list[Message]:
        """The replies to the messages `ids` that are here in whole."""
        return self._call(self._pull, ids)

    def _pull(self, ids: list[str]) -> list[Message]:
        new, whole = [asked for asked in ids if asked not in self._coming], []  # the SuperLink gives a reply out once
        found = self._client.PullMessages(PullAppMessagesRequest(message_ids=new))
        for header, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            self._coming[header.metadata.reply_to_message_id] = tree, {}
        # An agent that dies, or is slow, between a reply and its content must not hold up the others.
        for asked in [asked for asked in ids if asked in self._coming]:
            try:
                message = self._assembled(*self._coming[asked])
            except httpx.HTTPError:
                raise
            except Exception:  # it does not come any more, or nobody can read what an agent has sent: its time will be up
                del self._coming[asked]
                continue
            if message is not None:
                del self._coming[asked]
                whole.append(message)
        return whole

    def _assembled(self, tree: Any, parts: dict[str, bytes]) -> Message | None:
        """A reply; None, with what there is added to `parts`, if some of it has not come yet."""
        pull = make_pull_object_fn_protobuf(self._client.PullObject, self._node, self._run)
        try:
            for name in dict.fromkeys(part.object_id for part in iterate_object_tree(tree)):
                if name not in parts:
                    parts[name] = pull(name)
        except ObjectUnavailableError:
            return None
        make_confirm_message_received_fn_protobuf(self._client.ConfirmMessageReceived, self._node, self._run)(tree.object_id)
        message = inflate_object_from_contents(tree.object_id, parts)
        message.metadata.__dict__["_message_id"] = tree.object_id
        return message

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        if self._is_over():
            raise RunLost("stopped")
        self.asked = time.monotonic()
        try:
            return function(*args)
        except (httpx.HTTPError, ValueError, ObjectPushError) as error:
            raise RunLost(str(error)) from error
        finally:
            self.asked = None

    def _send_heartbeat(self) -> bool:
        # Flower's own function would interrupt this process; what has become of the run is seen by the next call.
        with contextlib.suppress(Exception):
            self._client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        return True

    def close(self, done: bool) -> None:
        """Ends the run on the SuperLink, if that still runs."""
        self._heartbeat.stop()
        self._client._retry_invoker.max_tries = 1
        status = SubStatus.COMPLETED if done else SubStatus.FAILED
        with contextlib.suppress(Exception):
            self._client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details="" if done else "stopped"))
        self._client.close()

"""Everything that uses private modules of flwr: what a SuperNode, a server app and `flwr` do, in this process. Written for flwr 1.41.

Flower starts a process for every message, which installs the app that came with the run and executes it with the agent's rights. Here
`fedpg join` is the SuperNode: `Fleet` takes the packet out of a message, sends the answer back, and never asks for the app. So a server
can ask an agent for the tasks of `fedpg.flower.protocol` and for nothing else. `OpenRun` is the server app of a run, and `Control` does
what Flower's command line does. No process is left that could outlive ours, but the SuperLink.

What each private name is needed for:

    FleetHttpClient and its requests, Node                the calls of an agent
    NodeAuthHttpInterceptor, public_key_to_bytes          sign them
    iterate_object_tree, inflate_object_from_contents, make_pull_object_fn_protobuf, ObjectPullError,
    ObjectUnavailableError, make_confirm_message_received_fn_protobuf
                                                          put a message together
    get_object_tree, get_all_nested_objects, no_object_id_recompute, message_to_proto, remove_content_from_message,
    make_push_object_fn_protobuf, ObjectPushError         take one apart
    RuntimeVersionHttpInterceptor                         say which version of Flower asks
    RuntimeHttpClient, AcquireTaskRequest, TaskType       ask the SuperLink for the task of a run
    SuperExecAuthHttpInterceptor                          prove that we know its secret
    HeartbeatSender, SendTaskHeartbeatRequest             show that the run is being worked on
    SubStatus                                             how it ended
    HttpGrid, TaskIdentity, PullTaskInputRequest, RetryInvoker, run_from_proto, PushTaskOutputRequest
                                                          be the server app of a run, and wait for a SuperLink that stutters
    ControlHttpClient, RegisterNodeRequest, StartRunRequest, StopRunRequest, build_fab_from_disk, Fab, fab_to_proto
                                                          register keys, start and stop runs

What else depends on the version, without an import: the names of the Fleet API's calls and of the key's header (`proxy.py`), and the
flags of `flower-superlink`.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.message.message import remove_content_from_message
from flwr.cli.build import build_fab_from_disk
from flwr.common.constant import SubStatus
from flwr.common.serde import fab_to_proto, message_to_proto, run_from_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest, StopRunRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest, PushTaskOutputRequest, SendTaskHeartbeatRequest
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
    ObjectPullError,
    ObjectPushError,
    ObjectUnavailableError,
    inflate_object_from_contents,
)
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.interceptors.http import SuperExecAuthHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.retry import RetryInvoker, constant
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedpg.flower.protocol import PACKET, RECORD

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
HEARTBEAT_SECONDS = 15.0
"""Flower counts an agent as gone when it has not shown itself for twice as long."""
CONTENT_SECONDS = 30.0
"""How long the content of a message may take to come."""


class RunLost(Exception):
    """The SuperLink does not serve the run any more: it ended, hangs, or counts the run as failed."""


class MessageLost(Exception):
    """A message cannot be read, or its answer is not wanted any more: its run has ended."""


def packet_of(message: Message) -> bytes:
    """The packet in a message; raises `MessageLost` if it is not one of ours."""
    try:
        packet = message.content[RECORD][PACKET]
    except (KeyError, TypeError):
        packet = None
    if not isinstance(packet, bytes):
        raise MessageLost("it holds no packet")
    return packet


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


class Fleet:
    """An agent's side of Flower's Fleet API: what a SuperNode does with a server.

    Its methods raise `httpx.TransportError` where the server cannot be reached, and `httpx.HTTPStatusError` where it refuses.

    Args:
        address: HOST:PORT of the server.
        authority: the certificate, as PEM, that signed the server's; None: no encryption, and any key may come in.
        key: the agent's private key.

    Attributes:
        node: Flower's number of this agent; 0 before `connect`.
    """

    def __init__(self, address: str, authority: bytes | None, key: EllipticCurvePrivateKey) -> None:
        proofs = [RuntimeVersionHttpInterceptor(component_name="SuperNode"), NodeAuthHttpInterceptor(key, key.public_key())]
        self._client = FleetHttpClient.from_server_address(address, authority is None, authority, proofs)
        self._key, self._registers, self.node = public_key_to_bytes(key.public_key()), authority is None, 0

    def connect(self, before: int) -> None:
        """Comes in. `before` is the number that an earlier process of this agent had, which may still count as connected; 0: none."""
        asked = ActivateNodeRequest(public_key=self._key, heartbeat_interval=HEARTBEAT_SECONDS)
        if before:
            self.leave(before)
        elif self._registers:
            self._register()
        try:
            self.node = self._client.ActivateNode(asked).node_id
        except httpx.HTTPStatusError:
            if not (before and self._registers):
                raise
            self._register()  # this is another server, or one that begins anew
            self.node = self._client.ActivateNode(asked).node_id

    def _register(self) -> None:
        """Makes the key of this agent known, unless it is: the process may have been killed before it knew its number."""
        try:
            self._client.RegisterNode(RegisterNodeFleetRequest(public_key=self._key))
        except httpx.HTTPStatusError as error:
            if error.response.status_code != IN_USE:
                raise

    def leave(self, node: int) -> None:
        """Says that a node of this agent is away, unless the server has no such node."""
        with contextlib.suppress(httpx.HTTPStatusError):
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=node))

    def beat(self) -> bool:
        """Shows that this agent is there; False if the server does not know it any more."""
        return self._client.SendNodeHeartbeat(SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT_SECONDS)).success

    def receive(self, is_over: Callable[[], bool]) -> Message | None:
        """The next message; None if there is none now."""
        found = self._client.PullMessages(PullMessagesRequest(node=self._node))
        if not found.messages_list:
            return None
        tree, run = found.message_object_trees[0], found.messages_list[0].metadata.run_id
        try:
            message = inflate_object_from_contents(tree.object_id, self._content(tree, run, is_over))
        except (httpx.HTTPStatusError, ObjectPullError) as error:  # its run has ended meanwhile
            raise MessageLost(str(error)) from error
        message.metadata.__dict__["_message_id"] = tree.object_id  # a message does not contain its own number
        return message

    def _content(self, tree: Any, run: int, is_over: Callable[[], bool]) -> dict[str, bytes]:
        """The parts of a message by name."""
        pull, found, end = make_pull_object_fn_protobuf(self._client.PullObject, self._node, run), {}, time.monotonic() + CONTENT_SECONDS
        for name in dict.fromkeys(part.object_id for part in iterate_object_tree(tree)):
            while name not in found:
                try:
                    found[name] = pull(name)
                except (ObjectUnavailableError, httpx.TransportError) as error:  # the server sends a message before its content
                    if is_over() or time.monotonic() > end:
                        raise MessageLost("its content did not come") from error
                    time.sleep(POLL)
        make_confirm_message_received_fn_protobuf(self._client.ConfirmMessageReceived, self._node, run)(tree.object_id)
        return found

    def reply(self, message: Message, packet: bytes) -> None:
        """Sends the packet that answers a message."""
        answer = Message(RecordDict({RECORD: ConfigRecord({PACKET: packet})}), reply_to=message)
        answer.metadata.__dict__["_message_id"] = answer.object_id
        with no_object_id_recompute():
            tree, objects = get_object_tree(answer), get_all_nested_objects(answer)
            asked = PushMessagesRequest(node=self._node, message_object_trees=[tree], clientapp_runtime_list=[0.0])
            asked.messages_list.append(message_to_proto(remove_content_from_message(answer)))
            try:
                sent = self._client.PushMessages(asked)
                push = make_push_object_fn_protobuf(self._client.PushObject, self._node, message.metadata.run_id, sent.session_id)
                for name in sent.objects_to_push:
                    push(name, objects[name].deflate())
            except (httpx.HTTPStatusError, ObjectPushError) as error:
                if isinstance(error, httpx.HTTPStatusError) and error.response.status_code >= 500:
                    raise
                raise MessageLost(str(error)) from error

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    @property
    def _node(self) -> Node:
        return Node(node_id=self.node)

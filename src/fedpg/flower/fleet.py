"""What uses private modules of flwr at an agent: `fedpg join` is its own SuperNode. Written for flwr 1.41.

Flower's SuperNode starts a process for every message, which installs the app that came with the run and executes it with the agent's
rights. `Fleet` makes the calls of a SuperNode, takes the packet out of a message, and never asks for the app. So a server can ask an
agent for the tasks of `fedpg.flower.protocol` and for nothing else. The server's half is `fedpg.flower.flwr_private`.

What each private name is needed for:

    FleetHttpClient and its requests, Node                the calls of an agent
    NodeAuthHttpInterceptor, public_key_to_bytes          sign them
    RuntimeVersionHttpInterceptor                         say which version of Flower asks
    iterate_object_tree, inflate_object_from_contents, make_pull_object_fn_protobuf, ObjectPullError, ObjectUnavailableError,
    make_confirm_message_received_fn_protobuf             put a message together
    get_object_tree, get_all_nested_objects, no_object_id_recompute, message_to_proto, remove_content_from_message,
    make_push_object_fn_protobuf, ObjectPushError         take one apart
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import httpx
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.message.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
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
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedpg.flower.protocol import PACKET, RECORD

HEARTBEAT_SECONDS = 15.0
"""Flower counts an agent as gone when it has not shown itself for twice as long."""
POLL, CONTENT_SECONDS = 0.2, 30.0
"""Seconds between questions for the content of a message, and how long it may take to come."""
IN_USE = 412
"""What a server answers when a key is registered again."""


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


def answer_to(message: Message, packet: bytes) -> Message:
    """The message that answers another one with a packet."""
    answer = Message(RecordDict({RECORD: ConfigRecord({PACKET: packet})}), reply_to=message)
    answer.metadata.__dict__["_message_id"] = answer.object_id
    return answer


class Fleet:
    """An agent's side of Flower's Fleet API: what a SuperNode does with a server.

    Its methods raise `httpx.TransportError` where the server cannot be reached, `httpx.HTTPStatusError` where it refuses, and
    `ValueError` where its answer is none.

    Args:
        address: HOST:PORT of the server.
        authority: the certificate, as PEM, that signed the server's; None: no encryption, and any key may come in.
        key: the agent's private key (`fedpg.flower.keys.private_key`).

    Attributes:
        node: Flower's number of this agent; 0 before `connect`.
    """

    def __init__(self, address: str, authority: bytes | None, key: Any) -> None:
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
        try:
            tree, run = found.message_object_trees[0], found.messages_list[0].metadata.run_id
            message = inflate_object_from_contents(tree.object_id, self._content(tree, run, is_over))
            message.metadata.__dict__["_message_id"] = tree.object_id  # a message does not contain its own number
        except MessageLost:
            raise
        except Exception as error:  # its run has ended meanwhile, or a server sends what nobody can read: the next one may be fine
            raise MessageLost(f"{type(error).__name__}: {error}") from error
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

    def send(self, answer: Message) -> None:
        """Sends an answer. It may be sent again if that fails: what has arrived already is not sent twice."""
        run = answer.metadata.run_id
        with no_object_id_recompute():
            tree, objects = get_object_tree(answer), get_all_nested_objects(answer)
            asked = PushMessagesRequest(node=self._node, message_object_trees=[tree], clientapp_runtime_list=[0.0])
            asked.messages_list.append(message_to_proto(remove_content_from_message(answer)))
            try:
                sent = self._client.PushMessages(asked)
                # Nothing to push: an earlier try arrived, though its receipt did not, and what it announced may be missing.
                again = not sent.objects_to_push
                session, names = ("", objects) if again else (sent.session_id, sent.objects_to_push)
                push = make_push_object_fn_protobuf(self._client.PushObject, self._node, run, session)
                for name in names:
                    with contextlib.suppress(*(ObjectPushError,) if again else ()):
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

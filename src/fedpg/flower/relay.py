"""The ClientApp: passes a packet on to the agent's warm worker, and its answer back.

Flower starts a new process for every message. So nothing is imported here that takes time, and nothing is known here of
algorithms or environments: those live in the worker that `fedpg join` keeps.
"""

from __future__ import annotations

import socket

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedpg.flower.names import PACKET, RECORD, SOCKET, framed, received

app = ClientApp()


@app.train()
def relay(message: Message, context: Context) -> Message:
    """The worker's answer to a packet. An error becomes Flower's error reply."""
    path = context.node_config.get(SOCKET)
    if not path:
        raise RuntimeError(f"the node has no {SOCKET} in its --node-config: start it with fedpg join")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(message.metadata.ttl)
        connection.connect(str(path))
        connection.sendall(framed(message.content[RECORD][PACKET]))
        answer = received(connection)
    return Message(RecordDict({RECORD: ConfigRecord({PACKET: answer})}), reply_to=message)

"""Bytes to every node and back, as fast as Flower does it: its server app polls as ours does."""

import json
import random
import time
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

server = ServerApp()
client = ClientApp()
POLL = 0.1


@client.train()
def echo(message: Message, context: Context) -> Message:
    """The same bytes back."""
    return Message(RecordDict({"bytes": ConfigRecord({"bytes": message.content["bytes"]["bytes"]})}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Times rounds; writes their seconds to `out`."""
    asked, seconds = context.run_config, []
    while len(nodes := list(grid.get_node_ids())) < asked["agents"]:
        time.sleep(POLL)
    for _ in range(asked["rounds"]):
        began, packet = time.monotonic(), random.randbytes(asked["size"])
        messages = [Message(RecordDict({"bytes": ConfigRecord({"bytes": packet})}), node, "train", ttl=120.0) for node in nodes]
        waiting = set(grid.push_messages(messages))
        while waiting:
            waiting -= {reply.metadata.reply_to_message_id for reply in grid.pull_messages(list(waiting))}
            time.sleep(POLL)
        seconds.append(time.monotonic() - began)
    Path(asked["out"]).write_text(json.dumps(seconds))

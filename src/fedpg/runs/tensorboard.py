"""TensorBoard: RUN/tensorboard, written anew from metrics.jsonl whenever a process begins, then added to."""

from __future__ import annotations

import socket
import time

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from fedpg.runs.config import Config, to_toml
from fedpg.runs.folder import RunFolder
from fedpg.runs.points import Point


class TensorBoard:
    """One event file.

    `EventFileWriter` would write in another thread, and say on the screen what goes wrong there; so records are written here.
    """

    def __init__(self, folder: RunFolder, config: Config) -> None:
        path = folder.path / "tensorboard"
        path.mkdir(exist_ok=True)
        # the newest stays: a TensorBoard that is reading it would not go on to the next if it were gone
        for old in sorted(path.glob("events.out.tfevents.*"))[:-1]:
            old.unlink()
        # the names of files say in which order TensorBoard reads them
        self._file = (path / f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}").open("wb")
        self._writer = RecordWriter(self._file)
        self._write(Event(file_version="brain.Event:2"))
        # whoever has read an older file forgets what it said of this step and later ones
        self._write(Event(step=0, session_log=SessionLog(status=SessionLog.START)))
        shown = "".join(f"    {line}\n" for line in to_toml(config).splitlines())  # indented, so that Markdown leaves it as it is
        kind = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        text = TensorProto(dtype=DT_STRING, string_val=[shown.encode()])
        self._write(Event(step=0, summary=Summary(value=[Summary.Value(tag="config", metadata=kind, tensor=text)])))

    def log(self, point: Point) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
        self._write(Event(step=point.round, summary=Summary(value=values)), point.time)

    def close(self, complete: bool) -> None:
        self._writer.close()

    def _write(self, event: Event, at: float | None = None) -> None:
        event.wall_time = time.time() if at is None else at
        self._writer.write(event.SerializeToString())
        self._writer.flush()


def check() -> None:
    """Nothing has to be set up."""


open_run = TensorBoard

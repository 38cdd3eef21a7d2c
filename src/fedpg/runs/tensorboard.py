"""TensorBoard: RUN/tensorboard, rewritten from metrics.jsonl when a process begins, then appended to."""

import socket
from time import time as now

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from fedpg.runs.config import Config, to_toml
from fedpg.runs.folder import RunFolder


class Tracker:
    """One event file, written record by record: `EventFileWriter` would print what goes wrong in a thread of its own."""

    def __init__(self, folder: RunFolder, config: Config, run_id: str) -> None:
        path = folder.path / "tensorboard"
        path.mkdir(exist_ok=True)
        # the newest stays: a TensorBoard that is reading it would not continue with the next file if it were gone
        for old in sorted(path.glob("events.out.tfevents.*"))[:-1]:
            old.unlink()
        # the names of files say in which order TensorBoard reads them
        self._writer = RecordWriter((path / f"events.out.tfevents.{now():017.6f}.{socket.gethostname()}").open("wb"))
        self._write(Event(file_version="brain.Event:2"), now())
        # a TensorBoard that has read an older file forgets this step and later ones
        self._write(Event(step=0, session_log=SessionLog(status=SessionLog.START)), now())
        shown = "".join(f"    {line}\n" for line in to_toml(config).splitlines())  # indented, so that Markdown leaves it as it is
        kind = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        text = TensorProto(dtype=DT_STRING, string_val=[shown.encode()])
        self._write(Event(step=0, summary=Summary(value=[Summary.Value(tag="config", metadata=kind, tensor=text)])), now())

    def log(self, round: int, time: float, values: dict[str, float]) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(Event(step=round, summary=Summary(value=values)), time)

    def close(self, complete: bool) -> None:
        self._writer.close()

    def _write(self, event: Event, time: float) -> None:
        event.wall_time = time
        self._writer.write(event.SerializeToString())
        self._writer.flush()

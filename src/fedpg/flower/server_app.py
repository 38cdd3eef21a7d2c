"""What our ServerApp does: reads what `fedpg serve` (or `flwr run`) asks for, and runs the federation over Flower's grid."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

from fedpg.errors import UserError, require
from fedpg.flower.server import Rules, lead
from fedpg.flower.status import Board
from fedpg.runs import config as configs
from fedpg.runs.config import Config
from fedpg.runs.folder import RunFolder, write_atomically
from fedpg.runs.setup import resolve

PROCESS = "serverapp.pid"
"""The file that says which process this is, so that `fedpg serve` notices when it is gone."""
STATUS = "status.json"


def serve(grid: Any, asked: dict[str, Any]) -> None:
    """Runs a federation to its end, with its status in OUT/federation/status.json. Raises what stopped it."""
    from fedpg.flower.keys import owner_of
    from fedpg.flower.link import FlowerLink

    require(bool(asked["config"] and asked["out"]), "a run needs config=FILE and out=FOLDER: see fedpg serve --help")
    out = Path(asked["out"])
    own = RunFolder(out).federation
    write_atomically(own / PROCESS, str(os.getpid()).encode())
    stored = out / "config.toml"
    resume = bool(asked["resume"]) and stored.exists()
    config = Config(**configs.read(stored if resume else Path(asked["config"])))
    board = Board(own / STATUS, resolve(config), RunFolder(out).rows())
    rules = Rules(float(asked["deadline"]), int(asked["quorum"]), float(asked["norm-bound"]), int(asked["start-with"]))
    owner = owner_of(Path(asked["keys"])) if asked["keys"] else lambda node: None
    try:
        lead(
            config,
            out,
            lambda terms, note: FlowerLink(grid, terms, owner, note, board.arrived),
            rules=rules,
            resume=resume,
            progress=board,
            watcher=board,
        )
    except UserError as error:
        board.failed(str(error))
        print(f"fedpg: {error}", file=sys.stderr)
        raise
    except BaseException as error:
        board.failed(f"{type(error).__name__}: {error}")
        traceback.print_exc()
        raise
    board.finished()

"""What an agent keeps on its own disk: its states, each under the number of the exchange that wrote it, and its privacy ledger."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

from fedpg import named_arrays
from fedpg.errors import UserError, require
from fedpg.flower.protocol import Refused
from fedpg.runs import checkpoint
from fedpg.runs.folder import write_atomically
from fedpg.theory.privacy import epsilon, separation

RUNS_KEPT = 3
MAX_DELTA = 1e-5
"""The largest delta of an agent's own account. The delta of a run is the server's choice, and a larger one makes any epsilon small."""
RUN_NAME = re.compile(r"[0-9a-z-]{1,64}")


class StateStore:
    """The states of one agent in one run.

    Args:
        folder: the agent's own.
        run: the run's name, which comes from the server and is checked before it becomes the name of a folder.
    """

    def __init__(self, folder: Path, run: str) -> None:
        if not RUN_NAME.fullmatch(run):
            raise Refused("invalid run name")
        self._folder = folder / run
        runs = sorted((path for path in folder.glob("*") if path.is_dir()), key=lambda path: path.stat().st_mtime)
        for old in [path for path in runs if path.name != run][: -(RUNS_KEPT - 1)]:
            shutil.rmtree(old, ignore_errors=True)

    def load(self, number: int, template: Any) -> Any:
        """State `number`, shaped like `template`; None if it is gone or damaged."""
        path = self._path(number)
        if not path.exists():
            return None
        try:
            return named_arrays.unflatten(template, checkpoint.read(path)[0])
        except UserError:
            return None

    def save(self, number: int, state: Any, keep: set[int]) -> None:
        """Writes state `number`, all of it or nothing, and deletes older ones that are not in `keep`.

        Newer ones stay: a task that is performed late must not undo what came after it.
        """
        checkpoint.write(self._path(number), named_arrays.flatten(state), {"number": number})
        for path in self._folder.glob("*.safetensors"):
            if path.stem.isdigit() and int(path.stem) < number and int(path.stem) not in keep:
                path.unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.safetensors"


class Ledger:
    """The privacy loss of all noisy messages of an agent, over all runs: Gaussian mechanisms compose by adding mu^2.

    Args:
        folder: the agent's own.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ledger.json"

    def after(self, noise: float, delta: float) -> tuple[float, float]:
        """mu^2, and epsilon at `delta` or `MAX_DELTA`, after one more message."""
        total = self._spent() + separation(noise, 1) ** 2
        return total, epsilon(2.0 / math.sqrt(total), 1, min(delta, MAX_DELTA))

    def _spent(self) -> float:
        if not self._path.exists():
            return 0.0
        try:
            spent = float(json.loads(self._path.read_text())["mu_squared"])
        except (ValueError, KeyError, TypeError):
            spent = math.nan
        require(0.0 <= spent < math.inf, "the ledger of this agent's privacy loss is damaged: restore it from a copy")
        return spent

    def write(self, total: float) -> None:
        """Records mu^2, before the message leaves."""
        write_atomically(self._path, json.dumps({"mu_squared": total}).encode())

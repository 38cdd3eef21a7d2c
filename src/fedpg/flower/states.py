"""What one agent keeps on its own disk: its states, each under the number of the exchange that led to it, one folder for every run;
and a ledger of what its messages have given away, which outlives them all."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

from fedpg import named_arrays as wire
from fedpg.errors import UserError, require
from fedpg.flower.packets import Refused
from fedpg.runs import checkpoint
from fedpg.runs.folder import write_atomically
from fedpg.theory.privacy import epsilon, separation

RUNS_KEPT = 3
LARGEST_DELTA = 1e-5
"""Of an agent's own account. The delta of a run is its server's choice, and a larger one makes any epsilon look small."""
NAME = re.compile(r"[0-9a-z-]{1,64}")


class States:
    """What an agent remembers of a run between exchanges.

    Args:
        folder: the agent's own.
        run: the run's name. It comes from the server, so it is not trusted to be a name of a file.
    """

    def __init__(self, folder: Path, run: str) -> None:
        if not NAME.fullmatch(run):
            raise Refused("a run with a name that cannot be")
        self._folder = folder / run
        runs = sorted((path for path in folder.glob("*") if path.is_dir()), key=lambda path: path.stat().st_mtime)
        for old in [path for path in runs if path.name != run][: -(RUNS_KEPT - 1)]:
            shutil.rmtree(old, ignore_errors=True)

    def load(self, number: int, template: Any) -> Any:
        """State `number`, shaped like `template`; None if it is gone, or damaged."""
        path = self._path(number)
        if not path.exists():
            return None
        try:
            return wire.unflatten(template, checkpoint.read(path)[0])
        except UserError:
            return None

    def save(self, number: int, state: Any) -> None:
        """Writes state `number` so that a crash leaves either all of it or nothing."""
        checkpoint.write(self._path(number), wire.flatten(state), {"number": number})

    def forget_before(self, number: int, but: set[int]) -> None:
        """Removes the older states, but for some. Later ones stay: a task that is done late must not undo what came after it."""
        for path in self._folder.glob("*.safetensors"):
            if path.stem.isdigit() and int(path.stem) < number and int(path.stem) not in but:
                path.unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.safetensors"


class Ledger:
    """What all noisy messages of an agent have given away together: Gaussian mechanisms compose by adding up mu^2.

    Args:
        folder: the agent's own.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ledger.json"

    def after(self, noise: float, delta: float) -> tuple[float, float]:
        """mu^2, and epsilon at `delta` or `LARGEST_DELTA`, after one more message."""
        total = self._spent() + separation(noise, 1) ** 2
        return total, epsilon(2.0 / math.sqrt(total), 1, min(delta, LARGEST_DELTA))

    def _spent(self) -> float:
        if not self._path.exists():
            return 0.0
        try:
            spent = float(json.loads(self._path.read_text())["mu_squared"])
        except (ValueError, KeyError, TypeError):
            spent = math.nan
        require(0.0 <= spent < math.inf, "the ledger of what this agent has given away is damaged: restore it from a copy")
        return spent

    def write(self, total: float) -> None:
        """Puts it on record, before the message leaves."""
        write_atomically(self._path, json.dumps({"mu_squared": total}).encode())

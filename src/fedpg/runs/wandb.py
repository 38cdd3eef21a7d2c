"""Weights & Biases: the project WANDB_PROJECT (default: fedpg); without a network with WANDB_MODE=offline."""

import dataclasses
import os
import shutil
from typing import Any

from fedpg.errors import require
from fedpg.runs.config import Config
from fedpg.runs.folder import RunFolder
from fedpg.runs.trackers import run_id

QUIET = {"silent": True, "console": "off"}
"""wandb neither prints nor captures what is printed."""
ONLY_POINTS = {"disable_git": True, "disable_code": True, "x_disable_stats": True, "x_disable_meta": True}
ONLY_POINTS |= {"x_save_requirements": False, "x_disable_machine_info": True}
"""Only numbers and settings are sent: no code, nothing about the machine."""


class WeightsAndBiases:
    """One run; offline, in RUN/wandb for `wandb sync`."""

    def __init__(self, folder: RunFolder, config: Config) -> None:
        wandb = _package()
        token = run_id(folder)
        # each process writes its own offline run; the new one begins with round 0, so it holds all of the old
        for old in (folder.path / "wandb").glob(f"offline-run-*-{token}"):
            shutil.rmtree(old)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedpg"),
            id=token,
            name=folder.path.resolve().name,
            dir=folder.path,
            resume="allow",
            settings=wandb.Settings(**QUIET, **ONLY_POINTS, init_timeout=20),
        )
        self._next = self._run.step
        self._run.config.update(dataclasses.asdict(config), allow_val_change=True)

    def log(self, round: int, time: float, values: dict[str, float]) -> None:
        if round >= self._next:
            self._run.log(values, step=round, commit=True)

    def close(self, complete: bool) -> None:
        self._run.finish(exit_code=0 if complete else 1)


def _package() -> Any:
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # before the import, which reads it
    os.environ.setdefault("WANDB_SILENT", "true")
    import wandb

    return wandb


def check() -> None:
    """Refuses an online run without a key, for which wandb would otherwise ask in the middle of the run."""
    wandb = _package()
    ready = wandb.setup().settings.mode != "online" or wandb.login(prompt=False, verify=False)
    require(bool(ready), "--track wandb has no key: run wandb login first, or set WANDB_MODE=offline")


open_run = WeightsAndBiases

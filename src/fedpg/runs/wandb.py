"""Weights & Biases: the project WANDB_PROJECT (default: fedpg); with WANDB_MODE=offline into RUN/wandb, for `wandb sync`."""

import dataclasses
import os
import shutil

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # before the import, which reads them
os.environ.setdefault("WANDB_SILENT", "true")

import wandb

from fedpg.errors import require
from fedpg.runs.config import Config
from fedpg.runs.folder import RunFolder

SETTINGS = {"silent": True, "console": "off", "init_timeout": 20, "disable_git": True, "disable_code": True}
SETTINGS |= {"x_disable_stats": True, "x_disable_meta": True, "x_save_requirements": False, "x_disable_machine_info": True}
"""wandb prints nothing, and only numbers and settings are sent: no code, nothing about the machine."""


class Tracker:
    """One run."""

    def __init__(self, folder: RunFolder, config: Config, run_id: str) -> None:
        # each process writes its own offline run; the new one begins with round 0, so it holds all of the old
        for old in (folder.path / "wandb").glob(f"offline-run-*-{run_id}"):
            shutil.rmtree(old)
        where = {"project": os.environ.get("WANDB_PROJECT", "fedpg"), "name": folder.path.resolve().name, "dir": folder.path}
        self._run = wandb.init(id=run_id, resume="allow", settings=wandb.Settings(**SETTINGS), **where)
        self._next = self._run.step
        self._run.config.update(dataclasses.asdict(config), allow_val_change=True)

    def log(self, round: int, time: float, values: dict[str, float]) -> None:
        if round >= self._next:
            self._run.log(values, step=round, commit=True)

    def close(self, complete: bool) -> None:
        self._run.finish(exit_code=0 if complete else 1)


def check() -> None:
    """Refuses an online run without a key, for which wandb would otherwise ask in the middle of the run."""
    ready = wandb.setup().settings.mode != "online" or wandb.login(prompt=False, verify=False)
    require(bool(ready), "--track wandb has no key: run wandb login first, or set WANDB_MODE=offline")

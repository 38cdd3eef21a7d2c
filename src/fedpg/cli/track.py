"""`fedpg track RUN --to NAME...`: sends a run folder to trackers afterwards."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from fedpg.cli.parse import parse
from fedpg.errors import require


@dataclasses.dataclass(frozen=True)
class TrackOptions:
    """Send a run to trackers afterwards, or what they missed of it. What a tracker has already is not sent twice.

    Example: fedpg track runs/mine --to tensorboard && tensorboard --logdir runs

    tensorboard: into RUN/tensorboard. wandb: to the project WANDB_PROJECT (default: fedpg); with WANDB_MODE=offline into RUN/wandb.
    mlflow: to the server of MLFLOW_TRACKING_URI. While a run goes on, `fedpg train --track NAME` does the same.
    """

    run: Annotated[str, tyro.conf.Positional]
    """The run folder, of a run that is finished or still goes on."""
    to: tuple[str, ...] = ()
    """Which trackers: tensorboard, wandb, mlflow; each needs the extra of its name."""


def main(argv: list[str]) -> int:
    """Sends; returns the exit code."""
    options = parse(TrackOptions, argv, "fedpg track")
    from fedpg.runs import checkpoint, metrics, trackers
    from fedpg.runs import config as configs
    from fedpg.runs.folder import RunFolder

    folder = RunFolder(Path(options.run))
    require(folder.config.exists(), f"no run in {folder.path}: give the folder that fedpg train or serve wrote")
    require(bool(options.to), "give --to and one or more trackers: tensorboard, wandb, mlflow")
    trackers.check(options.to)
    require(folder.checkpoint.exists(), f"the run in {folder.path} has no checkpoint yet: wait for its first")
    config = dataclasses.replace(configs.Config(**configs.read(folder.config)), track=options.to)
    _, about = checkpoint.read(folder.checkpoint)
    rows = [row for row in metrics.read(folder.metrics) if row["round"] <= about["evaluated"]]
    problems: list[str] = []
    with trackers.sending(folder, config, problems.append, patience=None) as send:
        send(rows)
    require(not problems, "; ".join(problems))
    print(f"{', '.join(options.to)}: {len(rows)} evaluated rounds are there")
    return 0

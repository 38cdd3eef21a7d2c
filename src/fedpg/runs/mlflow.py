"""MLflow: the server of MLFLOW_TRACKING_URI, the experiment MLFLOW_EXPERIMENT_NAME (default: fedpg)."""

import dataclasses
import importlib.util
import os
from typing import Any

from fedpg.errors import require
from fedpg.runs.config import Config
from fedpg.runs.folder import RunFolder
from fedpg.runs.trackers import run_id

OURS, LAST = "fedpg.run", "round"
"""The tag by which a run is found again, and the metric that is written after all others of a point."""
MOST_METRICS, LONGEST_PARAM = 1000, 6000
"""MLflow's limits for one request."""
CHANGING = ("rounds", "track")
"""Fields that a resumed run may change. MLflow's params cannot change, so these are tags."""


class MLflow:
    """One run on a server."""

    def __init__(self, folder: RunFolder, config: Config) -> None:
        mlflow = _package()
        self._client, self._metric, token = mlflow.MlflowClient(), mlflow.entities.Metric, run_id(folder)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedpg")
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        found = self._client.search_runs([experiment], f"tags.`{OURS}` = '{token}'")
        run = found[0] if found else self._client.create_run(experiment, tags={OURS: token}, run_name=folder.path.resolve().name)
        self._id, self._last, self._torn = run.info.run_id, run.data.metrics.get(LAST, -1), bool(found)
        self._client.update_run(self._id, status="RUNNING")
        settings = {key: value for key, value in dataclasses.asdict(config).items() if value is not None}
        params = [mlflow.entities.Param(key, _text(value)) for key, value in settings.items() if key not in CHANGING]
        tags = [mlflow.entities.RunTag(key, _text(settings[key])) for key in CHANGING]
        self._client.log_batch(self._id, params=params, tags=tags)

    def log(self, round: int, time: float, values: dict[str, float]) -> None:
        if round <= self._last:
            return
        metrics = [self._metric(name, value, int(1000 * time), round) for name, value in values.items()]
        if self._torn:  # an earlier process may have been killed in the middle of this point
            metrics, self._torn = [metric for metric in metrics if not self._has(metric)], False
        for first in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(self._id, metrics=metrics[first : first + MOST_METRICS])
        self._client.log_metric(self._id, LAST, round, int(1000 * time), round)

    def close(self, complete: bool) -> None:
        self._client.set_terminated(self._id, "FINISHED" if complete else "KILLED")

    def _has(self, metric: Any) -> bool:
        return any(there.step == metric.step for there in self._client.get_metric_history(self._id, metric.key))


def _package() -> Any:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before the import, which reads it
    import mlflow
    import mlflow.entities

    return mlflow


def _text(value: object) -> str:
    return (" ".join(map(str, value)) if isinstance(value, tuple) else str(value))[:LONGEST_PARAM]


def check() -> None:
    """Refuses to run without a server, unless the packages for a local database are installed."""
    local = _package().get_tracking_uri().startswith("sqlite:")
    there = importlib.util.find_spec("sqlalchemy") and importlib.util.find_spec("alembic")
    require(bool(there or not local), "--track mlflow has no server: set MLFLOW_TRACKING_URI to its address, or pip install mlflow")


open_run = MLflow

"""MLflow: the server of MLFLOW_TRACKING_URI, the experiment MLFLOW_EXPERIMENT_NAME (default: fedpg)."""

import dataclasses
import os

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before the import, which reads it

import mlflow
from mlflow.entities import Metric, Param

from fedpg.runs.config import Config
from fedpg.runs.folder import RunFolder

OURS, LAST = "fedpg.run", "round"
"""The tag by which a run is found again, and the metric that is written after all others of a round."""
MOST_METRICS, LONGEST_PARAM = 1000, 6000
"""MLflow's limits for one request."""


class Tracker:
    """One run on a server."""

    def __init__(self, folder: RunFolder, config: Config, run_id: str) -> None:
        self._client = mlflow.MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedpg")
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        found = self._client.search_runs([experiment], f"tags.`{OURS}` = '{run_id}'")
        run = found[0] if found else self._client.create_run(experiment, tags={OURS: run_id}, run_name=folder.path.resolve().name)
        self._id, self._last, self._torn = run.info.run_id, run.data.metrics.get(LAST, -1), bool(found)
        self._client.update_run(self._id, status="RUNNING")
        # MLflow's params cannot change, and a resumed run may change these two
        fixed = {key: value for key, value in dataclasses.asdict(config).items() if key not in ("rounds", "track")}
        self._client.log_batch(self._id, params=[Param(key, str(value)[:LONGEST_PARAM]) for key, value in fixed.items()])

    def log(self, round: int, time: float, values: dict[str, float]) -> None:
        if round <= self._last:
            return
        metrics = [Metric(name, value, int(1000 * time), round) for name, value in values.items()]
        if self._torn:  # an earlier process may have been killed in the middle of this round
            metrics, self._torn = [metric for metric in metrics if not self._has(metric)], False
        for first in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(self._id, metrics=metrics[first : first + MOST_METRICS])
        self._client.log_metric(self._id, LAST, round, int(1000 * time), round)

    def close(self, complete: bool) -> None:
        self._client.set_terminated(self._id, "FINISHED" if complete else "KILLED")

    def _has(self, metric: Metric) -> bool:
        return any(there.step == metric.step for there in self._client.get_metric_history(self._id, metric.key))

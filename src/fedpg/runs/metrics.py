"""One line of metrics.jsonl from what an engine measured."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from fedpg.communication import Communication
from fedpg.errors import UserError, require
from fedpg.rounds import HEALTHY, Scores, SeedState
from fedpg.runs.config import Config
from fedpg.runs.folder import read_lines
from fedpg.theory import privacy


class Costs(NamedTuple):
    """What every seed has used since round 0, (seeds,) each; `refused` counts messages."""

    env_steps: np.ndarray
    trajectories: np.ndarray
    refused: np.ndarray

    def plus(self, state: SeedState) -> "Costs":
        """The costs with what `state` counted since the last evaluation."""
        usage = state.info.usage
        return Costs(self.env_steps + usage.env_steps, self.trajectories + usage.trajectories, self.refused + state.refused.sum(1))


class Row(msgspec.Struct):
    """What every line has, and what reports and trackers rely on."""

    round: Annotated[int, msgspec.Meta(ge=0)]
    env_steps: float
    trajectories: float
    floats_up: float
    floats_down: float
    refused_messages: int
    failed_seeds: dict[str, int]
    weight_mean: float | None
    weight_max: float | None
    return_per_seed: list[float | None]
    return_worst_per_seed: list[float | None]
    return_per_agent: list[float | None]


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl.

    Raises:
        UserError: if a line is damaged, or of something else.
    """
    rows = read_lines(path)
    lists = [{name: values for name, values in row.items() if name.endswith("_per_seed")} for row in rows]
    try:
        checked = msgspec.convert(rows, list[Row])
        msgspec.convert(lists, list[dict[str, list[float | None]]])
    except msgspec.ValidationError as error:
        raise UserError(f"{path} is damaged, or not of this version of fedpg: {error}") from None
    seeds, agents = {len(values) for row in lists for values in row.values()}, {len(row.return_per_agent) for row in checked}
    require(len(seeds) <= 1 and len(agents) <= 1, f"{path} is damaged: its lines have different numbers of seeds or agents")
    return rows


def make_row(
    config: Config, round: int, seconds: float, scores: Scores, state: SeedState, costs: Costs, communication: Communication
) -> dict[str, Any]:
    """The line for `round`. Means are over the seeds that have not failed; NAME_per_seed lists hold null for those that have.

    Args:
        config: resolved.
        round: rounds done.
        seconds: spent training since round 0.
        scores: of every seed.
        state: of every seed, NumPy arrays, with what was counted since the last evaluation.
        costs: since round 0.
        communication: what the whole federation sends.
    """
    usage, weights = state.info.usage, state.info.weights
    returns, objectives = (np.where(np.isfinite(x), x, np.nan) for x in (scores.returns, scores.objective))
    with np.errstate(divide="ignore", invalid="ignore"):
        per_seed = {
            "return": np.array([known(np.mean, row) for row in returns]),
            "return_worst": np.array([known(np.min, row) for row in returns]),
            "objective": np.array([known(np.mean, row) for row in objectives]),
            "train_return": usage.total_return / usage.trajectories,
            "weight_mean": weights.total / weights.count,
            "weight_max": np.where(weights.count > 0, weights.largest, np.nan),
            "ess": effective_share(weights),
            "direction_sq": state.latest.direction_sq,
            "drift_sq": state.latest.drift_sq,
        }
    if scores.deterministic is not None:
        certain = np.where(np.isfinite(scores.deterministic), scores.deterministic, np.nan)
        per_seed["return_deterministic"] = np.array([known(np.mean, row) for row in certain])
        per_seed["return_deterministic_worst"] = np.array([known(np.min, row) for row in certain])
    if scores.grad_norm_sq is not None:
        per_seed |= {"grad_norm_sq": scores.grad_norm_sq, "spread": scores.spread}
    up, down = communication.total(round, costs.env_steps)
    counts = {"env_steps": costs.env_steps, "trajectories": costs.trajectories, "floats_up": up, "floats_down": down}
    counts["bytes_up"], counts["bytes_down"] = communication.in_bytes.total(round, costs.env_steps)

    healthy = state.failed == HEALTHY
    row: dict[str, Any] = {"round": round, "seconds": float(f"{seconds:.3f}")}
    for name, values in counts.items():
        row[name] = float(values.mean())
        row[f"{name}_per_seed"] = [int(v) for v in values]
    for name, values in per_seed.items():
        row[name] = short(known(np.mean, np.asarray(values)[healthy]))
        row[f"{name}_per_seed"] = [short(v) if fine else None for v, fine in zip(values, healthy, strict=True)]
    row["return_per_agent"] = [short(known(np.mean, row)) for row in returns[healthy].T]
    row["refused_per_agent"] = [int(v) for v in state.refused.sum(0)]
    row["refused_messages"] = int(costs.refused.sum())
    row["failed_seeds"] = {str(seed): int(state.failed[seed]) for seed in np.flatnonzero(~healthy)}
    if config.noise > 0:
        # An upper bound: the agents that missed rounds have sent fewer messages.
        row["epsilon"] = privacy.epsilon(config.noise, communication.messages(round), config.privacy_delta)
    return row


def effective_share(weights: Any) -> np.ndarray:
    """(sum w)^2 / (n sum w^2), the effective sample size of n importance weights as a share of n; NaN without weights."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(weights.total) ** 2 / (np.asarray(weights.squares) * weights.count)


def known(function: Callable[[np.ndarray], Any], values: np.ndarray) -> Any:
    """`function` of the values that are not NaN (an agent whose environment failed has none); NaN if there are none."""
    there = values[~np.isnan(values)]
    return function(there) if there.size else np.nan


def short(value: Any) -> float | None:
    """A float32 with no more digits than it has; None where it is not finite (JSON has no NaN)."""
    number = np.float32(value)
    return float(str(number)) if np.isfinite(number) else None

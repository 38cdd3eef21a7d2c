"""CALM-VR beside CALM and PAvg over a range of step-sizes: writes docs/data/calm_vr.jsonl, one line per task, K, method and eta.

`conflict` is the task of `fedpg reproduce drift`, CartPole that of `fedpg reproduce cartpole`. The rate is measured by `fedpg reproduce
complexity`.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np

from fedpg.paper import cartpole, drift
from fedpg.paper.method import CALM, CALM_VR, PAVG
from fedpg.paper.results import over_seeds
from fedpg.paper.task import measure

DATA = Path(__file__).parents[1] / "docs" / "data" / "calm_vr.jsonl"
SEEDS, ROOT, ROUNDS = 12, 5, 100


def rows() -> list[dict]:
    """J after ROUNDS rounds on `conflict`; on CartPole the mean return over 24 rounds."""
    found = []
    conflict = [dataclasses.replace(drift.CONFLICT, local_steps=k, rounds=ROUNDS) for k in (8, 32)]
    poles = dataclasses.replace(cartpole.TASK, local_steps=32)
    for task, etas in ((conflict[0], (0.01, 0.03, 0.1, 0.3)), (conflict[1], (0.003, 0.01, 0.03, 0.1, 0.3)), (poles, (5e-4, 1e-3, 2e-3))):
        rounds = range(1, 25) if task is poles else [ROUNDS]
        for method in (PAVG, CALM, CALM_VR):
            curves = measure(task, method, {"local_lr": np.array(etas)}, seeds=SEEDS, root=ROOT, rounds=rounds)
            values = np.nan_to_num(curves.returns).mean(-1) if task is poles else np.nan_to_num(curves.objective[..., -1])
            for eta, mean, low, high in zip(etas, *over_seeds(values)[:3], strict=True):
                numbers = {"mean": float(mean), "low": float(low), "high": float(high)}
                found.append({"task": task.name, "K": task.local_steps, "method": method.name, "eta": eta, "seeds": SEEDS} | numbers)
                print(found[-1], flush=True)
    return found


if __name__ == "__main__":
    DATA.write_text("".join(json.dumps(row) + "\n" for row in rows()))

"""CALM beside FedSVRPG-S, which it replaced and which has left the library, in the setting of `fedpg reproduce cartpole`.

    git worktree add ../before c8966d7                                                    the last commit that has FedSVRPG-S
    PYTHONPATH=../before/src python benchmarks/cartpole_predecessor.py FedSVRPG-S before.json
    python benchmarks/cartpole_predecessor.py CALM now.json
    python benchmarks/cartpole_predecessor.py compare before.json now.json                writes docs/data/cartpole_predecessor.jsonl

eta and lambda / (eta K) are those with the lowest median on tuning seeds, as in the experiment; other seeds are reported.
"""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np

from fedpg.paper import method as methods
from fedpg.paper.cartpole import TASK, needed, ratio_of_medians
from fedpg.paper.task import measure

DATA = Path(__file__).parents[1] / "docs" / "data" / "cartpole_predecessor.jsonl"
ETAS = np.array([1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3])
RATIOS = (1.0, 1.5)
"""lambda / (eta K), as in the experiment."""
LOCAL_STEPS, TRAJECTORIES, TUNING, SEEDS, ROOTS = (24, 32, 64, 128), 3840, 20, 40, (31, 131)


def run(name: str) -> list[dict]:
    """Trajectories to the goal of every reported seed, for every K."""
    found = []
    for k in LOCAL_STEPS:
        task, rounds = dataclasses.replace(TASK, local_steps=k), range(1, TRAJECTORIES // (TASK.agents * k) + 1)
        etas = np.tile(ETAS, len(RATIOS))
        settings = {"local_lr": etas, "global_lr": np.repeat(RATIOS, len(ETAS)) * etas * k}
        tuned = measure(task, methods.METHODS[name], settings, seeds=TUNING, root=ROOTS[0], rounds=rounds)
        medians = np.median(needed(tuned.returns, tuned.trajectories), axis=1)
        means = np.nan_to_num(tuned.returns).mean(-1).mean(1)
        best = min(range(len(etas)), key=lambda p: (medians[p], -means[p]))
        chosen = {key: values[[best]] for key, values in settings.items()}
        last = measure(task, methods.METHODS[name], chosen, seeds=SEEDS, root=ROOTS[1], rounds=rounds)
        spent = needed(last.returns, last.trajectories)[0]
        found.append({"method": name, "K": k, "eta": float(etas[best]), "ratio": float(settings["global_lr"][best] / etas[best] / k),
                      "trajectories": [None if np.isinf(x) else int(x) for x in spent]})  # fmt: skip
        print(name, k, found[-1]["eta"], found[-1]["ratio"], np.median(spent), flush=True)
    return found


def compare(before: list[dict], now: list[dict]) -> list[dict]:
    """CALM's median over FedSVRPG-S's for every K, with its interval, and the runs behind them."""

    def spent(row: dict) -> np.ndarray:
        return np.array([np.inf if x is None else x for x in row["trajectories"]])

    rows = []
    for old, new in zip(before, now, strict=True):
        ratio = ratio_of_medians(spent(new), spent(old))
        numbers = {name: float(x) if np.isfinite(x := getattr(ratio, name)) else None for name in ("mean", "low", "high")}
        rows.append({"method": "CALM / FedSVRPG-S", "K": new["K"]} | numbers)
    return rows + before + now


if __name__ == "__main__":
    if sys.argv[1] == "compare":
        before, now = (json.loads(Path(path).read_text()) for path in sys.argv[2:4])
        DATA.write_text("".join(json.dumps(row) + "\n" for row in compare(before, now)))
    else:
        Path(sys.argv[2]).write_text(json.dumps(run(sys.argv[1])))

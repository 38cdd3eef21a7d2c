"""The sweep behind src/fedpg/runs/presets.toml: every setting tried, one JSON line each, nothing left out.

python benchmarks/sweep_presets.py OUT.jsonl [--seeds 64] [--env cartpole]      (about a quarter of an hour on an H200)
"""

from __future__ import annotations

import argparse
import itertools
import json
import time

import numpy as np

from fedpg.runs.config import Config
from fedpg.runs.setup import resolve
from fedpg.runs.sweep import sweep

GRIDS = [
    (
        {"env": "cartpole", "agents": 5, "local_steps": 10, "rounds": 250, "horizon": 100},
        {"algorithm": ["fedsvrpg-m", "fedhapg-m"], "baseline": ["time", "linear", "none"], "local_lr": [1e-4, 2e-4, 3e-4, 5e-4, 1e-3]},
    ),
    (
        {"env": "random-mdp", "agents": 20, "local_steps": 32, "rounds": 20, "batch": 1},
        {
            "algorithm": ["pavg", "fedsvrpg-m", "fedhapg-m"],
            "baseline": ["none", "value"],
            "local_lr": [2e-3, 5e-3, 1e-2, 5e-2],
        },
    ),
    (
        {"env": "conflict", "agents": 5, "local_steps": 10, "rounds": 150, "batch": 1},
        {"algorithm": ["pavg", "fedsvrpg-m", "fedhapg-m"], "baseline": ["none", "value"], "local_lr": [2e-4, 5e-4, 2e-3, 5e-3]},
    ),
]


def measure(config: Config) -> dict:
    """Returns and objectives over the run; the last fifth shows whether it collapses."""
    began = time.monotonic()
    found = sweep(config)
    returns, objective = found.returns[0].mean(-1)[:, 1:].T, found.objective[0].mean(-1)[:, -1]  # without the start
    late = returns[-max(1, len(returns) // 5) :]
    return {
        "return_curve": [round(float(x), 3) for x in returns.mean(1)],
        "return_last": float(returns[-1].mean()),
        "return_last_lowest_seed": float(returns[-1].min()),
        "seeds_at_95_last": int((returns[-1] >= 95).sum()),
        "return_late_lowest": float(late.min()),
        "objective_last": float(objective.mean()),
        "objective_se": float(objective.std(ddof=1) / np.sqrt(config.seeds)),
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--seeds", type=int, default=64)
    parser.add_argument("--env", help="only this environment")
    given = parser.parse_args()
    with open(given.out, "w") as file:
        for fixed, grid in (one for one in GRIDS if given.env in (None, one[0]["env"])):
            for values in itertools.product(*grid.values()):
                setting = fixed | dict(zip(grid, values, strict=True))
                config = resolve(Config(**setting, seeds=given.seeds, seed=1))
                row = setting | {"beta": config.beta, "seeds": given.seeds} | measure(config)
                file.write(json.dumps(row) + "\n")
                file.flush()
                print(json.dumps({k: v for k, v in row.items() if k != "return_curve"}), flush=True)


if __name__ == "__main__":
    main()

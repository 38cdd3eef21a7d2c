"""The sweep behind src/fedpg/training/presets.toml: every setting tried, one JSON line each, nothing left out.

python benchmarks/sweep_presets.py OUT.jsonl [--seeds 64] [--env cartpole]      (about a quarter of an hour on an H200)
"""

from __future__ import annotations

import argparse
import itertools
import json
import time

import numpy as np

from fedpg.runs.config import Config
from fedpg.runs.setup import build, resolve

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
    engine = build(config)
    began = time.monotonic()
    engine.start()
    returns, objectives = [], []
    for first in range(0, config.rounds, config.eval_every):
        engine.advance(first, min(config.eval_every, config.rounds - first))
        scores = engine.evaluate(min(first + config.eval_every, config.rounds))
        returns.append(scores.total_return.mean(1))
        objectives.append(scores.objective.mean(1))
    curve = np.array(returns)
    late = curve[-max(1, len(curve) // 5) :]
    return {
        "return_curve": [round(float(x), 3) for x in curve.mean(1)],
        "return_last": float(curve[-1].mean()),
        "return_last_lowest_seed": float(curve[-1].min()),
        "seeds_at_95_last": int((curve[-1] >= 95).sum()),
        "return_late_lowest": float(late.min()),
        "objective_last": float(objectives[-1].mean()),
        "objective_se": float(objectives[-1].std(ddof=1) / np.sqrt(config.seeds)),
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

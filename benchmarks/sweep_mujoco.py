"""The sweeps behind the MuJoCo presets: one JSON line for every setting that finishes.

python benchmarks/sweep_mujoco.py OUT.jsonl --steps 5e6 env=halfcheetah local-lr=1e-3,3e-3 beta=0.2,0.8 [--part 0/8]

Every NAME=V1,V2,... is a flag of `fedpg train` with the values to try; all combinations are run, each for `--steps`
environment steps a seed. `--part I/M` runs every M-th of them, for M processes side by side.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import time

import numpy as np

from fedpg.runs.config import Config, make
from fedpg.runs.setup import resolve
from fedpg.runs.sweep import sweep

EVALUATIONS = 10


def value_of(text: str) -> object:
    try:
        return json.loads(text.lower())
    except ValueError:
        return text


def measure(config: Config, steps: float) -> dict:
    """The curve of (env steps, return) per seed; stops at the first evaluation after `steps`."""
    began = time.monotonic()
    found = sweep(config, steps=steps)
    used, returns = found.env_steps[0].mean(0), np.round(found.returns[0].mean(-1), 1)
    curve = [[float(used[t]), *returns[:, t].tolist()] for t in range(1, len(used))]
    return {"curve": curve, "ess_last": round(float(found.ess[0, :, -1].mean()), 4), "seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("settings", nargs="+", metavar="NAME=V1,V2,...")
    parser.add_argument("--steps", type=float, default=5e6)
    parser.add_argument("--part", default="0/1")
    given = parser.parse_args()
    grid = {}
    for pair in given.settings:
        name, _, values = pair.partition("=")
        name = name.replace("-", "_")
        grid[name] = [value_of(text) for text in values.split(",")]
    part, parts = map(int, given.part.split("/"))
    for number, values in enumerate(itertools.product(*grid.values())):
        if number % parts != part:
            continue
        setting = dict(zip(grid, values, strict=True))
        config = resolve(make({"seeds": 1, "seed": 1, "eval_episodes": 8} | setting))
        rounds = int(given.steps / (config.agents * config.batch * config.horizon * config.local_steps)) + 1
        # Walker and Hopper fall long before the horizon at first, so that more rounds fit into the same number of steps.
        every = max(1, rounds // EVALUATIONS)
        config = dataclasses.replace(config, rounds=rounds * (1 if config.env == "halfcheetah" else 5), eval_every=every, u0=1)
        row = setting | measure(config, given.steps)
        with open(given.out, "a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

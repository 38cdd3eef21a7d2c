"""The sweeps behind the presets of the rivals: every setting tried, one JSON line each, nothing left out. `mean` and
`lowest` are over seeds: the return on CartPole, the objective J elsewhere.

python benchmarks/sweep_rivals.py OUT.jsonl [--seeds 6] [--algorithm scaffold ...]      (a few minutes each on two cores)
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.runs.config import Config, parse_options
from fedpg.runs.setup import build, resolve
from fedpg.runs.sweep import curves

STEPS = (0.001, 0.003, 0.006, 0.012)
GRIDS = {
    "scaffold": STEPS,
    "fedprox": STEPS,
    "fast-fedpg": STEPS,
    "mfpo": (0.0003, *STEPS[:3]),
    "fedavg-m": STEPS,
    "fedkl": (*STEPS[:2], 0.01, 0.03),
    "nharpg": (0.01, 0.03, 0.1, 0.3),  # lengths of a step
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--algorithm", nargs="*", default=list(GRIDS))
    parser.add_argument("--option", nargs="*", default=[], help="NAME=VALUE pairs for --algorithm-option")
    parser.add_argument("--env", default="cartpole")
    parser.add_argument("--beta", type=float)
    parser.add_argument("--local-lr", nargs="*", type=float, help="instead of the grid above")
    parser.add_argument("--rounds", nargs="*", type=int, default=[2, 4, 6, 8, 12], help="when to evaluate")
    given = parser.parse_args()
    for name in given.algorithm:
        began, steps = time.monotonic(), given.local_lr or GRIDS[name]
        wanted = {"env": given.env, "algorithm": name, "beta": given.beta, "algorithm_option": parse_options(given.option)}
        config = resolve(Config(**wanted, seeds=given.seeds, seed=11, rounds=given.rounds[-1]))
        sim = build(dataclasses.replace(config, global_lr=None), {"local_lr": jnp.asarray(steps, float)})
        found = curves(sim, jax.random.key(config.seed), given.rounds)
        seconds = round(time.monotonic() - began)
        with open(given.out, "a") as file:
            for local_lr, values in zip(steps, (found.returns if given.env == "cartpole" else found.objective).mean(-1), strict=True):
                row = wanted | {"local_lr": local_lr, "beta": config.beta, "batch": config.batch, "local_steps": config.local_steps}
                row |= {"seeds": given.seeds, "root": config.seed, "rounds": given.rounds, "seconds": seconds}
                row |= {"mean": np.round(values.mean(0), 2).tolist(), "lowest": np.round(values.min(0), 2).tolist()}
                # JSON has no NaN: a setting in which a seed failed has null
                row |= {key: [x if np.isfinite(x) else None for x in row[key]] for key in ("mean", "lowest")}
                file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

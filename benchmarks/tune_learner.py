"""The search behind the presets of the actor-critic: settings of one environment on seeds that no table reports.

Every line of docs/data/learner_presets.jsonl is one trial: what differs from the presets of that moment, and the deterministic returns of
identical agents, unless it says otherwise.

Run it: python benchmarks/tune_learner.py ENV TOTAL_STEPS NAME=VALUE ... [+ NAME=VALUE ...]

Trials are separated by +. Names are those of `Config`; a name that is none is an option of the learner, and so is one
after `learner.`, as in learner.clip=0.3. `seed=[2000,2001]` runs every root seed by itself.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from fedpg.runs.config import FIELDS, parse_options
from fedpg.runs.setup import preset_of
from fedpg.runs.training import train

DATA = Path(__file__).parents[1] / "docs" / "data" / "learner_presets.jsonl"
ROOT = 1000
"""Root seed of all trials; reports use small ones."""
POINTS = 8
"""Evaluations of a trial."""
TARGETS = {
    "cartpole": 475.0,
    "gym:CartPole-v1": 475.0,
    "gym:LunarLander-v3": 200.0,
    "gym:Acrobot-v1": -100.0,
    "gym:Pendulum-v1": -200.0,
    "swimmer": 300.0,
    "hopper": 1800.0,
    "walker2d": 1500.0,
    "halfcheetah": 3500.0,
}


def summary(env: str, env_steps: list[float], deterministic: list[list[float]]) -> dict:
    """Of the seeds at the end: mean, lowest; steps to the target, median over seeds (infinite counts), and seeds that never reached it."""
    curves = np.array(deterministic).T
    reached = [env_steps[int(np.argmax(curve >= TARGETS[env]))] if (curve >= TARGETS[env]).any() else np.inf for curve in curves]
    found = {"final": round(float(curves[:, -1].mean()), 1), "lowest": float(curves[:, -1].min()), "lost": int(np.isinf(reached).sum())}
    median = float(np.median(reached))
    return found | {"to_target": median if np.isfinite(median) else None}


def curves_of(env: str, total: int, changes: dict) -> tuple[list[float], list[list[float]]]:
    """Environment steps, and the deterministic returns of every seed after them."""
    given = {"env": env, "learner": "actor-critic", "algorithm": "pavg", "heterogeneity": 0.0, "agents": 5, "seeds": 2, "seed": ROOT}
    given |= {"eval_episodes": 2} | {name: value for name, value in changes.items() if name in FIELDS}
    given["learner_option"] = {name.removeprefix("learner."): value for name, value in changes.items() if name not in FIELDS}
    sizes = preset_of(env, given["algorithm"], "actor-critic") | given
    per_round = sizes["agents"] * sizes["local_steps"] * sizes["batch"] * sizes["rollout_steps"]
    given["rounds"] = max(1, round(total / per_round))
    given.setdefault("eval_every", max(1, given["rounds"] // POINTS))
    with tempfile.TemporaryDirectory() as folder:
        rows = train(out=Path(folder) / "run", **given).rows
    found = [np.round(np.asarray(row["return_deterministic_per_seed"], float), 1).tolist() for row in rows]
    return [row["env_steps"] for row in rows], found


def trial(env: str, total: int, changes: dict) -> dict:
    """Trains and returns a line of the data file."""
    roots = changes.get("seed", ROOT)
    runs = [curves_of(env, total, changes | {"seed": root}) for root in (roots if isinstance(roots, list) else [roots])]
    steps, found = runs[0][0], [np.concatenate(points).tolist() for points in zip(*(curves for _, curves in runs), strict=True)]
    return {"env": env} | summary(env, steps, found) | {"changes": changes, "env_steps": steps, "deterministic": found}


if __name__ == "__main__":
    env, total, *words = sys.argv[1:]
    text = " ".join(words)
    for part in text.split(" + "):
        line = {"trial": part} | trial(env, int(float(total)), parse_options(part.split()))
        print(json.dumps(line), flush=True)
        with DATA.open("a") as file:
            file.write(json.dumps(line) + "\n")

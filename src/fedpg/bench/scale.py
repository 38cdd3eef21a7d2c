"""How the cost of training grows: seconds of a run over seeds, agents, rounds and horizon, and the slope of its logarithm."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedpg.bench import Options, Row, Training, in_turns, peak_bytes
from fedpg.runs.config import Config
from fedpg.runs.setup import resolve

SHARED = {"algorithm": "fedsvrpg-m", "batch": 1, "local_steps": 10, "local_lr": 1e-6, "baseline": "none", "u0": 1}
WIDE = {"theta_threshold": 1e6, "x_threshold": 1e6}
"""CartPoles that never fall, so that every lane is always busy."""
TASKS: dict[str, dict[str, Any]] = {
    "random MDPs": SHARED | {"env": "random-mdp", "agents": 20, "seeds": 100, "horizon": 50, "discount": 0.9},
    "CartPole": SHARED | {"env": "cartpole", "agents": 4, "seeds": 64, "horizon": 50, "normalise_observations": "off", "env_option": WIDE},
}
FULL = {"gpu": 64}
"""How many times the seeds that fill the device, where it is not two cores."""
TIMES = (1, 4, 16)
"""How many times the smallest size, which is one round, or that of the task."""


def measure(options: Options) -> list[Row]:
    """A row for every task and dimension: all sizes in turns, and the slope of log seconds over log size."""
    rows = []
    for task, given in TASKS.items():
        smallest = given | {"seeds": given["seeds"] * FULL.get(jax.default_backend(), 1)}
        one = Training(resolve(Config(**smallest)), rounds=1)
        rows.append(row_of(task, "rounds", {times: functools.partial(one.seconds, times) for times in TIMES}, options))
        for over in ("seeds", "agents", "horizon"):
            sizes = [smallest[over] * times for times in TIMES]
            others = {size: Training(resolve(Config(**smallest | {over: size})), rounds=1).seconds for size in sizes[1:]}
            rows.append(row_of(task, over, {sizes[0]: one.seconds} | others, options))
    return rows


def row_of(task: str, over: str, work: dict[int, Callable[[], float]], options: Options) -> Row:
    """The row of one dimension; `work` maps sizes to functions that return seconds."""
    peaks = []
    for run in work.values():
        run()
        peaks.append(peak_bytes())
    seconds = list(in_turns(options.repeats, **{str(size): run for size, run in work.items()}).values())
    found = {"sizes": list(work), "seconds": [float(f"{one:.4g}") for one in seconds], "slope": slope(list(work), seconds)}
    # Of the other dimensions every size has a program of its own, which takes memory too.
    more = {"peaks": peaks} if over == "rounds" else {}
    return {"group": f"{task}, seconds over {over}", "name": "fedpg", "unit": ""} | found | more


def slope(sizes: list[int], seconds: list[float]) -> float:
    """The slope of the straight line through log seconds over log size: 1 where twice the size takes twice as long.

    >>> slope([1, 4, 16], [0.5, 2.0, 8.0])
    1.0
    """
    return round(float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]), 3)

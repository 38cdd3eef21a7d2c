"""Finite MDPs, 5 states and 5 actions: whole rounds of FedSVRPG-M beside a loop over scalars."""

import random
import time

from fedpg.bench import Options, Row, Training, in_turns, peak_bytes
from fedpg.runs.config import Config
from fedpg.runs.setup import resolve

STATES, ACTIONS, HORIZON, AGENTS, SEEDS = 5, 5, 50, 5, 200
PEER = "a loop over scalars in Python, rollouts only"


def measure(options: Options) -> list[Row]:
    """A thousand lanes and the peer in turns."""
    given = {"env": "random-mdp", "algorithm": "fedsvrpg-m", "agents": AGENTS, "seeds": SEEDS, "horizon": HORIZON, "batch": 1, "u0": 1}
    ours = Training(resolve(Config(**given, local_steps=32, baseline="none", local_lr=1e-4)))
    work = {"fedpg": ours.rate} | ({} if options.no_peers else {PEER: scalar_rate})
    size = {"group": "random MDPs, fedsvrpg-m", "unit": "environment steps", "horizon": HORIZON}
    own = {"lanes": AGENTS * SEEDS, "first_seconds": ours.first_seconds, "peak_bytes": peak_bytes()}
    rates = in_turns(options.repeats, **work)
    return [size | {"name": name, "rate": rate} | (own if name == "fedpg" else {"lanes": 1}) for name, rate in rates.items()]


def scalar_rate(trajectories: int = 200) -> float:
    """Environment steps a second of trajectories drawn step by step."""
    policy, kernel = [1.0] * ACTIONS, [1.0] * STATES
    began = time.perf_counter()
    for _ in range(trajectories):
        state, visits = 0, [[0] * ACTIONS for _ in range(STATES)]
        for _ in range(HORIZON):
            (action,) = random.choices(range(ACTIONS), policy)
            visits[state][action] += 1
            (state,) = random.choices(range(STATES), kernel)
    return trajectories * HORIZON / (time.perf_counter() - began)

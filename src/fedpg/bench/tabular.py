"""Finite MDPs, 5 states and 5 actions: whole rounds of three algorithms beside loops written by hand, and a table over lanes."""

import jax

from fedpg.bench import Options, Row, Training, in_turns, peak_bytes
from fedpg.bench.tabular_peers import DISCOUNT, LOCAL_LR, peers
from fedpg.runs.config import Config
from fedpg.runs.setup import resolve

ALGORITHMS = ("fedsvrpg-m", "pavg", "calm")
AGENTS, LOCAL_STEPS, HORIZON = 20, 32, 50
LANES = {"gpu": 320_000}
"""Lanes of the comparison, where they are not 8,000."""
SIZE = {"unit": "environment steps", "horizon": HORIZON, "local_steps": LOCAL_STEPS}


def training(algorithm: str, lanes: int) -> Training:
    """A federation of 20 agents in many seeds, or of fewer agents."""
    agents = min(lanes, AGENTS)
    given = {"env": "random-mdp", "algorithm": algorithm, "agents": agents, "seeds": lanes // agents, "horizon": HORIZON, "batch": 1}
    given |= {"local_steps": LOCAL_STEPS, "discount": DISCOUNT, "local_lr": LOCAL_LR, "baseline": "none", "u0": 1}
    return Training(resolve(Config(**given)))


def measure(options: Options) -> list[Row]:
    """The algorithms and the peers in turns, then FedSVRPG-M alone for more and more lanes."""
    lanes = LANES.get(jax.default_backend(), 8000)
    ours = {f"fedpg, {algorithm}": training(algorithm, lanes) for algorithm in ALGORITHMS}
    others = {} if options.no_peers else peers(lanes, LOCAL_STEPS, HORIZON)
    rates = in_turns(options.repeats, **{name: one.rate for name, one in ours.items()}, **others)
    rows = [SIZE | {"group": "random MDPs", "name": name, "rate": rate, "lanes": lanes} for name, rate in rates.items()]
    for row in rows[: len(ours)]:
        row |= {"first_seconds": ours[row["name"]].first_seconds, "peak_bytes": peak_bytes()}
    for lanes in (1, 20, 200, 2000, 20_000, 200_000, 1_000_000):
        if lanes <= options.most_lanes:
            one = training("fedsvrpg-m", lanes)
            rate = in_turns(options.repeats, fedpg=one.rate)["fedpg"]
            own = {"name": "fedpg", "lanes": lanes, "rate": rate, "first_seconds": one.first_seconds, "peak_bytes": peak_bytes()}
            rows.append(SIZE | {"group": "random MDPs, over lanes", "algorithm": "fedsvrpg-m"} | own)
    return rows

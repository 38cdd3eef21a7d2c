"""CartPole with the paper's 8x8 policy: whole rounds of FedSVRPG-M, gradients and importance weights included."""

import importlib.util

from fedpg.bench import Options, Row, Training, in_turns, peak_bytes
from fedpg.runs.config import Config
from fedpg.runs.setup import resolve

AGENTS, LOCAL_STEPS, WIDEST = 4, 10, 1e6
STEPS = "environment steps"
PEER = "PyTorch and Gymnasium, one process"


def config(lanes: int, horizon: int, algorithm: str = "fedsvrpg-m") -> Config:
    """Lanes of agents with one trajectory each. Nothing ends an episode before the horizon, so that every lane is always busy."""
    seeds, agents = (lanes // AGENTS, AGENTS) if lanes >= AGENTS else (1, lanes)
    given = {"env": "cartpole", "algorithm": algorithm, "agents": agents, "seeds": seeds, "horizon": horizon, "batch": 1}
    given |= {"local_steps": LOCAL_STEPS, "local_lr": 1e-6, "baseline": "none", "normalise_observations": "off", "u0": 1}
    return resolve(Config(**given, env_option={"theta_threshold": WIDEST, "x_threshold": WIDEST}))


def measure(options: Options) -> list[Row]:
    """Two hundred seeds and the peer in turns, then a table over lanes."""
    rows = []
    lanes, horizon = 256 * AGENTS, options.horizon
    ours = Training(config(lanes, horizon))
    work = {"fedpg": ours.rate}
    if not options.no_peers and importlib.util.find_spec("torch") and importlib.util.find_spec("gymnasium"):
        from fedpg.bench import torch_cartpole

        work[PEER] = lambda: torch_cartpole.rate(AGENTS, LOCAL_STEPS, horizon)
    rates = in_turns(options.repeats, **work)
    size = {"group": "CartPole, 8x8 policy", "algorithm": "fedsvrpg-m", "horizon": horizon, "unit": STEPS}
    for name, rate in rates.items():
        own = {"lanes": lanes, "first_seconds": ours.first_seconds, "peak_bytes": peak_bytes()} if name == "fedpg" else {"lanes": AGENTS}
        rows.append(size | {"name": name, "rate": rate} | own)
    for lanes in (1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576):
        if lanes <= options.most_lanes:
            one = Training(config(lanes, horizon))
            rate = in_turns(options.repeats, fedpg=one.rate)["fedpg"]
            own = {"name": "fedpg", "lanes": lanes, "rate": rate, "first_seconds": one.first_seconds, "peak_bytes": peak_bytes()}
            rows.append(size | {"group": "CartPole, over lanes"} | own)
    return rows

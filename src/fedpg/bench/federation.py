"""A federation of processes on this machine: seconds of a round of `fedpg serve` and `fedpg join`, beside the simulator."""

import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from fedpg.bench import Options, Row, Training, in_turns
from fedpg.runs import config as configs
from fedpg.runs.config import Config
from fedpg.runs.setup import resolve

AGENTS, ROUNDS, PATIENCE = 2, 6, 300.0
CONFIG = {"env": "cartpole", "algorithm": "fedsvrpg-m", "agents": AGENTS, "local_steps": 2, "batch": 2, "horizon": 20, "eval_every": 1}


def measure(options: Options) -> list[Row]:
    """Rounds a second of a federation without TLS, and of the same run in the simulator."""
    size = {"group": "CartPole, fedsvrpg-m", "unit": "rounds", "agents": AGENTS}
    rows = [size | {"name": "fedpg, processes", "rate": serve()}]
    if not options.no_peers:
        ours = Training(resolve(Config(**CONFIG, rounds=ROUNDS)))
        steps = AGENTS * CONFIG["local_steps"] * CONFIG["batch"] * CONFIG["horizon"]
        rate = in_turns(options.repeats, simulator=ours.rate)["simulator"] / steps
        rows.append(size | {"name": "the simulator, at most", "rate": rate, "first_seconds": ours.first_seconds})
    return rows


def serve() -> float:
    """Rounds a second after the first, in which programs are compiled."""
    with tempfile.TemporaryDirectory() as name:
        folder, address = Path(name), f"127.0.0.1:{free_port()}"
        (folder / "serve.toml").write_text(configs.to_toml(Config(**CONFIG, rounds=ROUNDS)))
        given = ["--config", str(folder / "serve.toml"), "--out", str(folder / "run"), "--status", "none", "--address", address]
        processes = [start(folder / "serve.log", "serve", *given, "--insecure")]
        for agent in range(AGENTS):
            words = ("--server", address, "--agent-id", str(agent), "--env", CONFIG["env"], "--folder", str(folder / f"agent-{agent}"))
            processes.append(start(folder / f"join-{agent}.log", "join", *words, "--insecure"))
        try:
            code = processes[0].wait(PATIENCE)
            if code:
                raise RuntimeError(f"fedpg serve ended with {code}: {(folder / 'serve.log').read_text()[-500:]}")
            rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
        finally:
            for process in processes:
                process.terminate()
                process.wait(PATIENCE)
    return (rows[-1]["round"] - rows[1]["round"]) / (rows[-1]["seconds"] - rows[1]["seconds"])


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(log: Path, *words: str) -> subprocess.Popen:
    """A verb in a process of its own."""
    with log.open("wb") as file:
        return subprocess.Popen([sys.executable, "-m", "fedpg", *words], stdout=file, stderr=file)

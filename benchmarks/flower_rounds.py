"""What a round costs beside a bare Flower round of the same bytes: `python benchmarks/flower_rounds.py`, on a quiet machine.

The peer is benchmarks/bare_flower, which sends bytes to every node and back. Its server app polls as often as ours; its nodes are
Flower's SuperNodes, which poll every 3 seconds. Both run on this machine without TLS, one after the other, for every size and number of
agents: first the peer, then ours, then the peer again.
A round of ours is the time between two checkpoints: sending, the agents' local updates in JAX, checks, aggregation, saving.
The first round, in which programs are compiled, is left out of both. Writes docs/data/flower_rounds.json and, from it, the table
of docs/explanation/federation.md.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
DATA, PAGE = ROOT / "docs" / "data" / "flower_rounds.json", ROOT / "docs" / "explanation" / "federation.md"
sys.path.insert(0, str(ROOT / "tests"))

from fedpg.flower import processes  # noqa: E402
from fedpg.flower.processes import Child  # noqa: E402
from helpers.real import federation  # noqa: E402

WIDTHS = {"5 thousand": 121, "1 million": 31_217}
"""Numbers in an observation that give the policy, a 32x32 network, as many params."""
AGENTS = (2, 5)
ROUNDS = 6


def bare(agents: int, size: int) -> list[float]:
    """Seconds of the peer's rounds."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), processes.free_port()
        home = folder / "home"
        link = [processes.command("flower-superlink"), "--host", "127.0.0.1", "--port", str(port), "--insecure"]
        link += ["--disable-runtime-dependency-installation", "--database", str(folder / "db")]
        children = [Child(link, folder / "link.log", home)]
        try:
            processes.wait_until_open(port, children[0])
            local = "[superlink.local]\noptions.num-supernodes = 1\n"
            (home / "config.toml").write_text(f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n{local}')
            for i in range(agents):
                node = [processes.command("flower-supernode"), "--superlink", f"127.0.0.1:{port}", "--insecure", "--host", "127.0.0.1"]
                children.append(Child([*node, "--port", str(processes.free_port())], folder / f"node-{i}.log", folder / f"home-{i}"))
            asked = f'out="{folder / "out"}" agents={agents} rounds={ROUNDS} size={size}'
            words = [processes.command("flwr"), "run", str(ROOT / "benchmarks" / "bare_flower"), "here", "-c", asked]
            subprocess.run(words, env=processes.environment(home), check=True, stdout=subprocess.DEVNULL, timeout=120)
            while not (folder / "out").exists():
                time.sleep(0.5)
            return json.loads((folder / "out").read_text())
        finally:
            for child in reversed(children):
                child.stop()


def ours(agents: int, width: int) -> tuple[list[float], list[float], int]:
    """Seconds of our rounds, of the agents' own work in them, and the numbers in a message."""
    options = {"observation": width, "action": 1}
    with (
        tempfile.TemporaryDirectory() as name,
        federation(
            Path(name), env="spaces", env_option=options, algorithm="pavg", agents=agents, rounds=ROUNDS, local_lr=1e-3,
            normalise_observations="off", baseline="none", eval_episodes=1,
        ) as real,
    ):  # fmt: skip
        real.serve()
        for agent in range(agents):
            real.join(agent, "--env-option", *(f"{name}={value}" for name, value in options.items()))
        saved, seen = real.out / "checkpoint" / "state.safetensors", [0]
        real.wait_until(saved.exists)
        while real.processes["serve"].poll() is None:
            if (changed := saved.stat().st_mtime_ns) != seen[-1]:
                seen.append(changed)
            time.sleep(0.02)
        real.finish()
        said = [line for agent in range(agents) for line in real.log(f"join-{agent}").splitlines() if "sent a message" in line]
        found = [re.search(r"of ([\d,]+) numbers in ([\d.]+) s", line) for line in said if not re.search(r"round 0:", line)]
        return (
            [(after - before) / 1e9 for before, after in itertools.pairwise(seen[1:])],
            [float(match[2]) for match in found],
            int(found[0][1].replace(",", "")),
        )


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as they stand in the document, between two comments."""
    columns = ("params", "agents", "bytes each way", "bare Flower", "ours", "ratio", "of it an agent's own work")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in rows:
        seconds = f"{row['bare']:.2f} s | {row['ours']:.2f} s | {row['ratio']:.2f} | {row['work']:.2f} s"
        lines.append(f"| {row['params']} | {row['agents']} | {row['bytes']:,} | {seconds} |")
    return "\n".join(["<!-- flower rounds -->", "", *lines, "", "<!-- end -->"])


def main() -> None:
    """Measures everything, prints it, writes the file and the table."""
    rows: list[dict[str, Any]] = []
    for params, width in WIDTHS.items():
        for agents in AGENTS:
            size = 4 * (32 * width + 32 + 32 * 32 + 32 + 32 + 1 + 1)
            before = bare(agents, size)[1:]
            mine, work, numbers = ours(agents, width)
            after = bare(agents, size)[1:]
            peer = [*before, *after]
            row = {
                "params": params, "agents": agents, "bytes": size, "numbers": numbers, "bare": median(peer), "ours": median(mine[1:]),
                "ratio": median(mine[1:]) / median(peer), "work": median(work), "bare_rounds": peer, "our_rounds": mine,
            }  # fmt: skip
            rows.append(row)
            print({name: row[name] for name in ("params", "agents", "bare", "ours", "ratio", "work")}, flush=True)
    machine = {"machine": platform.machine(), "cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}
    DATA.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    PAGE.write_text(re.sub(r"<!-- flower rounds -->.*?<!-- end -->", lambda _: table(rows), PAGE.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main()

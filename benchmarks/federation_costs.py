"""What the processes of a federation cost: `python benchmarks/federation_costs.py`, on this machine.

Waiting: a server with keys and three of its four agents, for a minute. Large: four agents train a policy of 10 MB for three rounds.
Memory is the resident set, its largest value, and the proportional set, in which what processes share counts once. CPU is the share of
one core. Writes docs/data/federation_costs.json and, from it, the table of docs/explanation/federation.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DATA, PAGE = ROOT / "docs" / "data" / "federation_costs.json", ROOT / "docs" / "explanation" / "federation.md"
sys.path.insert(0, str(ROOT / "tests"))

from fedpg.flower.keys import make_keys  # noqa: E402
from helpers.real import Real, descendants, federation  # noqa: E402

SECONDS = 60.0
WIDTH = 78_000
"""Numbers in an observation that give the policy, a 32x32 network, 2.5 million params, 10 MB."""
ENV = "helpers.wide_env:make"


def cost(process: int) -> dict[str, float]:
    """CPU seconds so far, and memory in MB: now, and the most so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":" in line)
    memory = {name: int(status[key].split()[0]) / 1000 for name, key in (("mb", "VmRSS"), ("most_mb", "VmHWM"))}
    shares = dict(line.split(":", 1) for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines() if ":" in line[:40])
    memory["shared_once_mb"] = int(shares["Pss"].split()[0]) / 1000
    return memory | {"cpu": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")}


def processes(real: Real) -> dict[str, int]:
    """The processes of a federation by name."""
    found = {}
    for name, process in real.processes.items():
        parts = {"serve": ("fedpg serve", "flower-superlink")}.get(name, (f"fedpg join {name[-1]}",))
        children = descendants(process.pid)
        found |= dict(zip(parts, [process.pid, *children], strict=False))
    return found


def waiting(folder: Path) -> dict[str, dict[str, float]]:
    """The costs of a server that waits for the fourth agent."""
    make_keys(folder / "keys", (), 4)
    with federation(folder, agents=4) as real:
        real.secure = ("--keys", str(folder / "keys"))
        real.serve()
        for agent in range(3):
            real.join(agent)
        real.wait_until(lambda: real.status().get("state", "").startswith("waiting for agent 3 "), 240.0)
        time.sleep(10.0)
        before = {name: cost(process) for name, process in processes(real).items()}
        time.sleep(SECONDS)
        after = {name: cost(process) for name, process in processes(real).items()}
    return {name: after[name] | {"cpu": (after[name]["cpu"] - before[name]["cpu"]) / SECONDS} for name in after}


def large(folder: Path) -> dict[str, dict[str, float]]:
    """The costs of training a policy of 10 MB."""
    options = {"env": ENV, "env_option": {"width": WIDTH}, "baseline": "time", "normalise_observations": "off", "hidden": (32, 32)}
    found: dict[str, dict[str, float]] = {}
    with federation(folder, ("--deadline", "300"), algorithm="pavg", agents=4, rounds=3, horizon=5, **options) as real:
        real.environment["PYTHONPATH"] = os.pathsep.join((str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")))
        began = time.monotonic()
        real.serve()
        for agent in range(4):
            real.join(agent, "--env-option", f"width={WIDTH}")
        while real.processes["serve"].poll() is None:
            for name, process in processes(real).items():
                with contextlib.suppress(OSError, KeyError):
                    found[name] = cost(process)
            time.sleep(0.5)
        real.finish(600.0)
        assert real.round() == 3
    return {name: one | {"cpu": one["cpu"] / (time.monotonic() - began)} for name, one in found.items()}


def table(data: dict[str, Any]) -> str:
    """Both measurements as rows."""
    lines = ["| | process | memory | most | shared parts once | of a core |", "|---|---|---|---|---|---|"]
    for what, rows in data.items():
        for name, one in rows.items():
            memory = " | ".join(f"{one[key]:.0f} MB" for key in ("mb", "most_mb", "shared_once_mb"))
            lines.append(f"| {what} | {name} | {memory} | {100 * one['cpu']:.1f} % |")
        both = [rows[name] for name in ("fedpg serve", "flower-superlink")]
        total = " | ".join(f"{sum(one[key] for one in both):.0f} MB" for key in ("mb", "most_mb", "shared_once_mb"))
        lines.append(f"| {what} | **server, both** | {total} | {100 * sum(one['cpu'] for one in both):.1f} % |")
    return "\n".join(lines)


def main() -> None:
    """Measures what is named on the command line, or both."""
    data = json.loads(DATA.read_text()) if DATA.exists() else {}
    for name, measure in (("waiting", waiting), ("large", large)):
        if name in sys.argv[1:] or len(sys.argv) == 1:
            with tempfile.TemporaryDirectory() as folder:
                data[name] = {key: {k: round(v, 4) for k, v in one.items()} for key, one in measure(Path(folder)).items()}
            DATA.write_text(json.dumps(data, indent=1) + "\n")
    text = f"<!-- costs -->\n\n{table(data)}\n\n<!-- end costs -->"
    PAGE.write_text(re.sub(r"<!-- costs -->.*<!-- end costs -->", lambda _: text, PAGE.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main()

"""What one slow agent costs a federation of eight: `python benchmarks/slow_agents.py`, with real processes on this machine.

Agent 3 takes ten times as long as the others for every step of its environment (benchmarks/slow_env.py). The same run is made twice,
side by side: with a fixed deadline that everyone keeps and no late answers, as before deadlines adapted, and with the defaults. Seconds
are counted from the first evaluation. Writes docs/data/slow_agents.json, the figure docs/images/slow-agents.svg, and the table of
docs/explanation/federation.md.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DATA, PAGE = ROOT / "docs" / "data" / "slow_agents.json", ROOT / "docs" / "explanation" / "federation.md"
IMAGE = ROOT / "docs" / "images" / "slow-agents"
sys.path.insert(0, str(ROOT / "tests"))

from helpers.real import federation  # noqa: E402

AGENTS, ROUNDS, SLOW, SECONDS, FACTOR = 8, 10, 3, 0.15, 10
RUN = {"algorithm": "pavg", "local_lr": 0.8, "local_steps": 2, "batch": 2, "horizon": 10, "eval_every": 2, "eval_episodes": 2}
ENV = f"{ROOT / 'benchmarks' / 'slow_env.py'}:make"
RULES = {"everyone is waited for": ("--deadline", "120", "--max-staleness", "0"), "default": ()}
SHARE = 0.9
"""Of what the first run gains: the return that both are timed to."""


def measure(flags: tuple[str, ...]) -> dict[str, Any]:
    """A run's evaluations as [seconds, round, return], and how many late answers counted."""
    with tempfile.TemporaryDirectory() as name:
        paces = [SECONDS * FACTOR if agent == SLOW else SECONDS for agent in range(AGENTS)]
        with federation(Path(name), flags, env=ENV, env_option={"seconds": paces}, agents=AGENTS, rounds=ROUNDS, **RUN) as real:
            real.serve()
            for agent in range(AGENTS):
                real.join(agent, "--env-option", f"seconds={paces[agent]}")
            curve, began = [], 0.0
            while real.processes["serve"].poll() is None or len(real.lines("metrics.jsonl")) > len(curve):
                for row in real.lines("metrics.jsonl")[len(curve) :]:
                    began = began or time.monotonic()
                    curve.append([round(time.monotonic() - began, 1), row["round"], round(row["return"], 3)])
                time.sleep(0.1)
            real.finish()
            late = sum("came late, and counts in round" in event["what"] for event in real.events(SLOW))
    return {"curve": curve, "late answers": late}


def draw(data: dict[str, Any]) -> None:
    """Both learning curves against wall-clock time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from fedpg.report.style import OTHERS, PALETTE, RC, WIDTH

    with plt.rc_context(RC):
        figure, axes = plt.subplots(figsize=(WIDTH, 3.4), layout="constrained")
        for (name, one), look in zip(data["runs"].items(), OTHERS, strict=False):
            seconds, _, returns = zip(*one["curve"], strict=True)
            axes.plot(seconds, returns, color=PALETTE[look.colour], marker=look.marker, label=name)
        axes.axhline(data["goal"], color=PALETTE[-1], linestyle="--", linewidth=1, label=f"a return of {data['goal']:.1f}")
        axes.set(xlabel="seconds since the first evaluation", ylabel="return", title="one of eight agents is ten times slower")
        axes.legend(loc="lower right")
        for ending in ("svg", "png"):
            figure.savefig(IMAGE.with_suffix(f".{ending}"), dpi=200, metadata={"Date": None} if ending == "svg" else None)


def main() -> None:
    """Runs both, and writes what was found."""
    with ThreadPoolExecutor() as pool:
        runs = dict(zip(RULES, pool.map(measure, RULES.values()), strict=True))
    first, *_, last = (point[2] for point in runs["everyone is waited for"]["curve"])
    goal = first + SHARE * (last - first)
    for one in runs.values():
        one["seconds to the goal"] = next(seconds for seconds, _, found in one["curve"] if found >= goal)
    ratio = runs["default"]["seconds to the goal"] / runs["everyone is waited for"]["seconds to the goal"]
    DATA.write_text(json.dumps({"goal": round(goal, 3), "ratio": round(ratio, 3), "runs": runs}, indent=1) + "\n")
    show(json.loads(DATA.read_text()))


def show(data: dict[str, Any]) -> None:
    """Draws the figure, and writes the table of the page."""
    draw(data)
    lines = [f"| rule | seconds to a return of {data['goal']:.1f} | seconds in all | late answers that counted |", "|---|---|---|---|"]
    for name, one in data["runs"].items():
        lines.append(f"| {name} | {one['seconds to the goal']:.0f} | {one['curve'][-1][0]:.0f} | {one['late answers']} |")
    table = "<!-- slow agents -->\n\n" + "\n".join(lines) + "\n\n<!-- end slow agents -->"
    PAGE.write_text(re.sub(r"<!-- slow agents -->.*?<!-- end slow agents -->", lambda _: table, PAGE.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main()

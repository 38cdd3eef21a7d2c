"""`fedpg demo` in small: its table, its sentences, its picture; at full size, what it claims."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fedpg.cli import demo
from fedpg.cli.demo import METHODS, DemoOptions, verdict
from fedpg.report.statistics import estimate
from fedpg.runs.config import Config


def test_a_sentence_says_no_more_than_its_interval():
    assert verdict("a", estimate(np.array([1.0, 2.0, 3.0]))) == "a: no clear difference, 2.0 [-0.5, 4.5]."
    assert verdict("a", estimate(np.array([1.9, 2.0, 2.1]))) == "a: better by 2.0 [1.8, 2.2]."
    assert verdict("a", estimate(np.array([-1.9, -2.0, -2.1]))) == "a: worse by 2.0 [1.8, 2.2]."


@pytest.mark.slow
def test_a_small_demo_shows_everything(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "TASK", demo.TASK | {"horizon": 12, "local_steps": 2})
    monkeypatch.setattr(demo, "CONFLICT", demo.CONFLICT | {"rounds": 2})
    console = Console(record=True, width=160, force_terminal=False)
    written = demo.demo(DemoOptions(rounds=2, seeds=2, out=str(tmp_path / "demo")), console)
    assert [path.name for path in written] == ["demo.png", "demo.mp4", "demo.gif"]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    text = console.export_text()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert [row[0] for row in cells] == [label for label, _ in METHODS.values()]
    assert [row[-1] for row in cells][2:] == ["0", "all trajectories"]
    assert all(row[4] == "not reached" for row in cells)
    assert text.count("against local only") == 3
    for name in METHODS:
        rows = [json.loads(line) for line in (tmp_path / "demo" / name / "metrics.jsonl").read_text().splitlines()]
        assert [row["round"] for row in rows] == [0, 2]


@pytest.mark.slow
def test_the_demo_convinces_and_is_quick(tmp_path):
    """CALM beats local-only on unseen environments, is close to pooled, and loses where agents want opposite things."""
    console = Console(record=True, width=160, force_terminal=False)
    began = time.monotonic()
    demo.demo(DemoOptions(out=str(tmp_path / "demo")), console)
    took, text = time.monotonic() - began, console.export_text()
    assert "CALM, federated, against local only on unseen environments: better by" in text
    assert "CALM, federated, against pooled on unseen environments: worse by" not in text
    assert "CALM against local only, in their own environments: worse by" in text
    assert took < 90.0


def test_every_method_has_its_best_step_size_of_other_seeds_and_the_page_shows_a_real_run():
    """docs/start/demo.md and the step-sizes follow from data: nothing in them is typed by hand."""
    docs = Path(__file__).parents[2] / "docs"
    tuned = json.loads((docs / "data" / "demo_tuning.json").read_text())
    assert tuned["settings"] | demo.TASK == tuned["settings"]
    assert tuned["settings"]["seed"] != Config().seed
    for name, (_, rate) in METHODS.items():
        found = {one["local_lr"]: one["return"] for one in tuned["results"] if one["method"] == name}
        ordered = sorted(found, key=found.get)
        assert rate == ordered[-2 if name == "pooled" else -1]  # docs/start/demo.md says why pooled has its second best
    page = (docs / "start" / "demo.md").read_text()
    assert (docs / "data" / "demo.txt").read_text().strip() in page
    for one in tuned["results"]:
        assert f"{one['return']} [{one['interval'][0]}, {one['interval'][1]}]" in page

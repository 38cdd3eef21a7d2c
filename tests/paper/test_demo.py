"""The demo in small: three run folders, a table, a picture."""

from __future__ import annotations

import json

from rich.console import Console

from fedpg.paper.demo import ALGORITHMS, DemoOptions, demo


def test_demo_ends_with_a_table_and_a_picture(tmp_path):
    console = Console(record=True, width=140, force_terminal=False)
    picture = demo(DemoOptions(rounds=2, seeds=2, out=str(tmp_path / "demo")), console)
    assert picture.stat().st_size > 10_000
    shown = console.export_text()
    assert all(label in shown for label in ALGORITHMS.values())
    for algorithm in ALGORITHMS:
        agents = json.loads((tmp_path / "demo" / algorithm / "manifest.json").read_text())["agents_of_seed_0"]
        assert max(agents["length"]) / min(agents["length"]) == 4.0
        assert len(set(agents["gravity"])) == len(set(agents["start_range"])) == 5

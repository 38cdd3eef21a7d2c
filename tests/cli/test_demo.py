"""`fedpg demo` in small: three run folders, a table, a picture."""

import json
import tomllib

import pytest
from rich.console import Console

from fedpg.cli.demo import ALGORITHMS, FIVE, DemoOptions, demo
from fedpg.runs import training


def test_the_table_is_made_from_the_runs(tmp_path, monkeypatch):
    """Three algorithms whose returns are known: 95 is reached in different rounds, or never."""
    ends = dict(zip(ALGORITHMS, (100.0, 96.0, 60.0), strict=True))

    def train(config, *, out, progress):
        assert config.env_option == FIVE
        values = {round: min(ends[config.algorithm], 20.0 + 30.0 * round) for round in (0, 2, 4)}
        rows = [
            {
                "round": round,
                "return_per_seed": [value, value],
                "return_worst_per_seed": [value - 5.0] * 2,
                "floats_up": 40.0,
                "floats_down": 80.0,
            }
            for round, value in values.items()
        ]
        return type("Run", (), {"round": 4, "rows": rows})

    monkeypatch.setattr(training, "train", train)
    console = Console(record=True, width=140, force_terminal=False)
    picture = demo(DemoOptions(rounds=4, seeds=2, out=str(tmp_path)), console)
    assert picture.read_bytes().startswith(b"\x89PNG")
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in console.export_text().splitlines() if line.startswith("│")]
    assert cells == [
        ["FedSVRPG-M", "100.0 [100.0, 100.0]", "95.0 [95.0, 95.0]", "round 4", "30"],
        ["PAvg", "96.0 [96.0, 96.0]", "91.0 [91.0, 91.0]", "round 4", "30"],
        ["local only", "60.0 [60.0, 60.0]", "55.0 [55.0, 55.0]", "-", "30"],
    ]


@pytest.mark.slow
def test_a_small_demo_trains_five_different_agents(tmp_path):
    demo(DemoOptions(rounds=2, seeds=2, out=str(tmp_path / "demo")), Console(force_terminal=False))
    for algorithm in ALGORITHMS:
        rows = [json.loads(line) for line in (tmp_path / "demo" / algorithm / "metrics.jsonl").read_text().splitlines()]
        assert [row["round"] for row in rows] == [0, 2]
        assert tomllib.loads((tmp_path / "demo" / algorithm / "config.toml").read_text())["env-option"] == FIVE

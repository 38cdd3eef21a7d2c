"""Figure 2: what is said of more agents, on curves with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.paper import figure_2
from fedpg.paper.figure_2 import SCALES, Scale
from helpers.curves import made_up


def test_rounds_to_a_level_are_counted_up_to_the_last():
    run = made_up(110.0, seeds=3, scatter=0.0)  # 10 a round, from 10
    assert figure_2.rounds_to(run, 60.0).tolist() == pytest.approx([5.0] * 3)
    assert figure_2.rounds_to(run, 200.0).tolist() == [10.0] * 3
    assert figure_2.rounds_to(run, 5.0).tolist() == [1.0] * 3


def test_the_speed_up_is_a_geometric_mean_over_seeds():
    found = figure_2.speed_up(np.array([8.0, 16.0, 8.0]), np.array([4.0, 4.0, 8.0]))
    assert found.mean == pytest.approx(2.0)
    assert found.low < 1.0 < 4.0 < found.high


def judged(ends: dict[int, float], seeds: int = 4) -> dict[str, str]:
    rows = figure_2.judge("FedSVRPG-M", {agents: made_up(end, seeds=seeds) for agents, end in ends.items()}, 50.0, True)
    return {row.what.removeprefix("FedSVRPG-M").strip(":, "): row.verdict for row in rows}


def test_every_claim_is_judged():
    said = judged({4: 60.0, 5: 60.0, 8: 70.0})
    assert said["mean return over the run, N = 5 above N = 4"] == "no difference seen"
    assert said["mean return over the run, N = 8 above N = 4"] == "holds"
    speed = "speed-up from N = 4 to 8 in rounds to 50 (linear: 2)"
    assert said[speed] == "some, less than linear"
    assert judged({4: 60.0, 8: 140.0})[speed] == "more than linear"
    assert judged({4: 70.0, 8: 60.0})[speed] == "slower"
    never = judged({4: 40.0, 8: 70.0})
    assert never["N = 4: rounds to 50"] == "4 of 4 seeds never"
    assert never["N = 8: rounds to 50"] == ""


def test_the_full_scale_is_the_paper_s():
    assert SCALES["full"].agents == (4, 5, 8)
    assert set(SCALES["full"].algorithms) == {"fedsvrpg-m", "fedhapg-m"}
    assert figure_2.task("cartpole", "fedsvrpg-m", 8, **SCALES["full"].given).local_steps == 10


def test_a_run_trains_every_federation(monkeypatch):
    asked = []

    def fake(config, settings):
        asked.append((config.algorithm, config.agents, settings))
        return [made_up(100.0 - config.agents)]

    monkeypatch.setattr(figure_2, "curves", fake)
    shares: list[float] = []
    found = figure_2.run("full", lambda what, share: shares.append(share))
    assert asked == [(algorithm, agents, {"beta": [0.2]}) for algorithm in ("fedsvrpg-m", "fedhapg-m") for agents in (4, 5, 8)]
    assert shares == pytest.approx([0, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6])
    assert [panel.title for panel in found.panels] == ["CartPole, FedSVRPG-M, beta 0.2", "CartPole, FedHAPG-M, beta 0.2"]
    assert [line.label for line in found.panels[0].lines] == ["N = 4", "N = 5", "N = 8"]


def test_a_tiny_run(monkeypatch):
    tiny = {"rounds": 2, "eval_every": 1, "seeds": 2, "batch": 1, "horizon": 5, "local_steps": 1, "u0": "0", "eval_episodes": 1}
    monkeypatch.setitem(SCALES, "smoke", Scale(("fedsvrpg-m",), (2,), tiny, 90.0))
    found = figure_2.run("smoke", lambda what, share: None)
    assert [row.verdict for row in found.rows] == ["2 of 2 seeds never"]
    (line,) = found.panels[0].lines
    assert list(line.x) == [0, 1, 2]
    assert all(1.0 <= y <= 5.0 for y in line.y)

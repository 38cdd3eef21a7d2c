"""The speed-up: slopes of made-up laws are found, and a tiny real run has all its parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedpg.paper import reach, speedup
from fedpg.paper.fits import Fit
from fedpg.paper.prescribed import VARIANTS
from fedpg.paper.rates import Measured
from fedpg.paper.reach import Reach


def test_row_judges_what_was_promised_only() -> None:
    ground = speedup.GROUNDS["bowls"]()
    counts, slopes = np.array([1, 2]), (Fit(-1.02, -1.05, -0.97, 8), Fit(0.0, -0.1, 0.1, 8))
    good, none = (Reach(0.01, counts, Fit(np.ones(2), np.ones(2), np.ones(2), 8), one, []) for one in slopes)
    assert speedup.row(ground, "FedSVRPG-M", good).verdict == "holds"
    assert speedup.row(ground, "FedSVRPG-M", none).verdict.startswith("does not hold")
    assert speedup.row(ground, "FedSVRPG-M", none._replace(capped=[4, 8])).verdict.endswith("outside the regime for N = 4, 8")
    compared = speedup.row(ground, "PAvg", none)
    assert (compared.verdict, compared.published) == ("for comparison", None)


def made_up(ground: Any, make: Any, parts: dict, *, agents: int, local_steps: int, seeds: int) -> dict[str, Measured]:
    """Runs that obey (N per_agent)^(-2/3), twice as costly for PAvg."""
    found = {}
    for name, steps in parts.items():
        per_agent = local_steps * steps.rounds + steps.batches
        law = (agents * per_agent / (2.0 if name == "PAvg" else 1.0)) ** (-2 / 3)
        rounds, weights = np.array([0, *2 ** np.arange(20)]), np.ones((len(law), seeds))
        running = (agents * (local_steps * rounds + steps.batches[:, None] + 1e-3)) ** (-2 / 3)
        running = np.repeat(running[:, None], seeds, axis=1)
        found[name] = Measured(rounds, running, np.tile(law[:, None], seeds), per_agent, 0.9 * weights, weights)
    return found


def test_run_on_made_up_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every variant has its slope, the large eps is shown at full length only, and what is said comes from the runs."""
    monkeypatch.setattr(speedup, "measure", made_up)
    monkeypatch.setattr(reach, "measure", made_up)
    monkeypatch.setitem(speedup.SCALES, "full", speedup.Scale((1, 4, 16), {"bowls": 10**6}, 6, 2, searched=(1, 4), search_seeds=2))
    told = []
    outcome = speedup.run("full", lambda what, share: told.append(share))
    assert len(outcome.rows) == len(VARIANTS) + 3
    for row in outcome.rows:
        assert row.ours == pytest.approx(-1.0, abs=0.01), row.what
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert outcome.settings["constants"]["bowls"]["effective share of weights"] == pytest.approx(0.9)
    (drawn,) = outcome.panels
    assert [line.label for line in drawn.lines][-1] == "slope -1"
    assert slope_of(drawn.lines[-1]) == pytest.approx(-1.0)


def slope_of(line: Any) -> float:
    return float(np.diff(np.log(line.y))[0] / np.diff(np.log(line.x))[0])


@pytest.mark.slow  # tests/experiments/test_smoke.py runs one too
def test_tiny_real_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(speedup.SCALES, "smoke", speedup.Scale((1, 2), {"bowls": 64}, 2, 2))
    outcome = speedup.run("smoke", lambda what, share: None)
    assert [row.n for row in outcome.rows] == [2] * len(VARIANTS)
    assert all(np.isfinite([row.ours, row.low, row.high]).all() for row in outcome.rows)
    assert outcome.settings["constants"]["bowls"]["largest weight"] == 1.0

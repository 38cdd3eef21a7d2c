"""The sample complexity: exponents of made-up laws are found, and a tiny real run has all its parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedpg.paper import complexity
from fedpg.paper.fits import Fit
from fedpg.paper.laws import Law
from fedpg.paper.rates import Measured

START = 8.0


def obeying(power: float, steps: Any, agents: int, local_steps: int, seeds: int, scale: float = 1.0) -> Measured:
    """Runs whose eps is START (scale samples)^(-1/power), at most START; running means fall the same way to each setting's own R."""
    rounds = np.unique(np.concatenate([[0], steps.rounds, 2 ** np.arange(20)]))
    rounds = rounds[rounds <= steps.rounds.max()]

    def eps(per_agent: np.ndarray) -> np.ndarray:
        return START * np.maximum(1.0, scale * agents * per_agent) ** (-1.0 / power)

    per_agent = local_steps * steps.rounds + steps.batches
    noise = np.linspace(0.9, 1.1, seeds)
    running = eps(local_steps * rounds[None, None] + steps.batches[:, None, None] * (rounds > 0)) * noise[:, None]
    ones = np.ones((len(per_agent), seeds))
    running[..., 0] = START
    return Measured(rounds, running, eps(per_agent)[:, None] * noise, per_agent, ones, ones)


def made_up(ground: Any, make: Any, parts: dict, *, agents: int, local_steps: int, seeds: int, tell: Any) -> dict[str, Measured]:
    """eps^(-3/2) for momentum, eps^(-2) for PAvg and FedSVRPG-S."""
    tell(1.0)
    slow = ("PAvg", "FedSVRPG-S")
    return {name: obeying(2.0 if name.startswith(slow) else 1.5, steps, agents, local_steps, seeds) for name, steps in parts.items()}


def test_row_judges_what_was_promised_only() -> None:
    ground, law = complexity.GROUNDS["bowls"](), Law(np.ones(3), np.ones(3), Fit(1.95, 1.9, 2.0, 8), 1.5)
    assert complexity.row(ground, "FedSVRPG-M", law).verdict == "does not hold: 0.45 off"
    assert complexity.row(ground, "FedSVRPG-M", law._replace(slope=Fit(1.45, 1.4, 1.6, 8))).verdict == "holds"
    assert complexity.row(ground, "FedSVRPG-M", law._replace(slope=Fit(1.0, 0.9, 1.1, 8), remark="!")).verdict == "better than promised!"
    assert complexity.row(ground, "PAvg", law._replace(promised=None)).verdict == "for comparison"


def test_full_run_on_made_up_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method is fitted with its own exponent, searched ones too, and the cost of PAvg beside bold momentum is right."""
    monkeypatch.setattr(complexity, "measure", made_up)
    monkeypatch.setitem(complexity.SCALES, "full", complexity.Scale({"bowls": 2**17}, 6, 3, more=True))
    outcome = complexity.run("full", lambda what, share: None)
    found = {row.what.removeprefix("quadratics: "): row for row in outcome.rows}
    assert len(found) == 8
    for name, row in found.items():
        if "samples of" not in name:
            expected = 2.0 if name.startswith(("PAvg", "FedSVRPG-S")) else 1.5
            assert row.ours == pytest.approx(expected, abs=0.06), name
    (compared,) = (row for name, row in found.items() if "samples of" in name)
    samples = 2.0**17  # PAvg's; momentum reaches the same eps with that to the power 3/4
    assert compared.ours == pytest.approx(samples**0.25, rel=0.02)
    assert compared.verdict == "momentum needs fewer"
    (panel,) = outcome.panels
    assert panel.lines[-1].label == "slope -3/2"


def test_tiny_real_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(complexity.SCALES, "smoke", complexity.Scale({"bowls": 256}, 3, 2, more=False, agents=2))
    shares = []
    outcome = complexity.run("smoke", lambda what, share: shares.append(share))
    assert [row.what.split(": ")[1] for row in outcome.rows[:3]] == ["FedSVRPG-M", "FedSVRPG-M, bold", "PAvg"]
    assert all(np.isfinite([row.ours, row.low, row.high]).all() for row in outcome.rows)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0

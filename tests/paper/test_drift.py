"""`drift` in small: what would be run, and one run whose J are made up but whose floors are real."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedpg.paper import drift, floors
from fedpg.paper.outcome import load, save


def test_what_is_run():
    """Every K has PAvg and FedSVRPG-S; at K = 32 the rest, each named once; two decades of step-sizes."""
    for size in drift.SIZES.values():
        listed = [(label, k) for method, k in drift.programs(size) for label in drift.labels(method)]
        assert len(set(listed)) == len(listed)
        for k in size.local_steps:
            assert {("PAvg", k), ("FedSVRPG-S", k)} <= set(listed)
        assert (min(size.etas), max(size.etas)) == (0.001, 0.1)
    full = drift.SIZES["full"]
    assert {1, 64} <= set(full.local_steps)
    assert {"FedSVRPG-S, beta=0.05", "FedSVRPG-S, beta=0.5", "PAvg, no baseline"} <= {label for label, k in listed if k == drift.MANY}
    assert {("FedSVRPG-M", k) for k in full.local_steps} <= set(listed)
    assert len({label for label, k in listed if k == drift.MANY and "no baseline" in label}) == 7


def test_a_small_run(monkeypatch, tmp_path):
    """PAvg falls apart at the larger of two step-sizes; one problem with exact gradients. All parts are there, and can be saved."""

    def objectives(task, method, etas, *, seeds, root, rounds):
        assert (task.local_steps, method.label, root, rounds) == (drift.MANY, "FedSVRPG-S", 7, (6, 20))
        last = np.array([[[18.0], [19.5]], [[17.5], [12.0]]]) + np.linspace(0.0, 0.1, seeds)
        return np.stack([last - 3.0, last], axis=2)

    small = drift.SIZES["smoke"]._replace(
        rounds=20, seeds=2, etas=(1e-3, 1e-1), floor_rounds=150, floor_seeds=2, floor_betas=(0.5, 1.0),
        places=((floors.BOWLS, (floors.STABLE,)),),
    )  # fmt: skip
    monkeypatch.setitem(drift.SIZES, "smoke", small)
    monkeypatch.setattr(drift, "ROOT", 7)
    monkeypatch.setattr(drift, "objectives", objectives)
    told = []
    outcome = drift.run("smoke", lambda what, share: told.append((what, share)))
    assert [what for what, _ in told] == ["FedSVRPG-S, K=32", "floors on bowls"]
    assert [share for _, share in told] == sorted(share for _, share in told)
    named = {row.what: row for row in outcome.rows}
    assert named["K=32: best over eta, FedSVRPG-S - PAvg"].ours == pytest.approx(2.0)
    assert named["K=32, eta=0.1: FedSVRPG-S - PAvg, at least 1"].ours == pytest.approx(7.5)
    assert named["K=32, after 3/10 of the rounds: FedSVRPG-S - PAvg, worst eta (0.001)"].ours == pytest.approx(0.5)
    assert named["bowls, FedSVRPG-S: exponent of the floor in beta"].verdict == "holds (law: 2)"
    assert len(outcome.panels) == 3
    assert "roots 3, 7 and 77003" in outcome.notes[0]
    assert any("Left out at this scale: FedSVRPG-M; " in note for note in outcome.notes)
    path = save(outcome, tmp_path)
    assert path.stat().st_size < 60_000
    json.loads(path.read_text(), parse_constant=lambda name: 1 / 0)  # no NaN: other readers know none
    assert [row.what for row in load(path).rows] == list(named)

"""`drift` in small: what would be run, and one real run."""

from __future__ import annotations

import json

from fedpg.experiments import drift, floors
from fedpg.experiments.outcome import load, save


def test_what_is_run():
    """Every K has PAvg, FedSVRPG-S and FedSVRPG-M; at K = 32 the rest, each named once; two decades of step-sizes."""
    for size in drift.SIZES.values():
        listed = [(label, k) for method, k in drift.programs(size) for label in drift.labels(method)]
        assert len(set(listed)) == len(listed)
        for k in size.local_steps:
            assert {("PAvg", k), ("FedSVRPG-S", k), ("FedSVRPG-M", k)} <= set(listed)
        assert (min(size.etas), max(size.etas)) == (0.001, 0.1)
    full = drift.SIZES["full"]
    assert {1, 64} <= set(full.local_steps)
    assert {"FedSVRPG-S, beta=0.05", "FedSVRPG-S, beta=0.5", "PAvg, no baseline"} <= {label for label, k in listed if k == drift.MANY}
    assert all(method.betas == (drift.BETA,) for method, k in drift.programs(full) if k != drift.MANY)


def test_a_small_run(monkeypatch, tmp_path):
    """Two rounds, no rivals, one problem with exact gradients: all parts of the outcome are there, and can be saved."""
    small = drift.SIZES["smoke"]._replace(
        rounds=2, seeds=2, etas=(1e-4, 1e-2), rivals=(), floor_rounds=150, floor_seeds=2, floor_betas=(0.5, 1.0),
        places=((floors.BOWLS, (floors.STABLE,)),),
    )  # fmt: skip
    monkeypatch.setitem(drift.SIZES, "smoke", small)
    monkeypatch.setattr(drift, "ROOT", 7)
    told = []
    outcome = drift.run("smoke", lambda what, share: told.append((what, share)))
    assert [what for what, _ in told] == ["PAvg, K=32", "FedSVRPG-S, K=32", "floors on bowls"]
    assert [share for _, share in told] == sorted(share for _, share in told)
    named = {row.what: row for row in outcome.rows}
    assert named["K=32: best over eta, FedSVRPG-S - PAvg"].n == 2
    assert named["bowls, FedSVRPG-S: exponent of the floor in beta"].verdict == "holds (law: 2)"
    assert len(outcome.panels) == 3
    assert "roots 3 and 7" in outcome.notes[0]
    path = save(outcome, tmp_path)
    assert path.stat().st_size < 60_000
    json.loads(path.read_text(), parse_constant=lambda name: 1 / 0)  # no NaN: other readers know none
    assert [row.what for row in load(path).rows] == list(named)

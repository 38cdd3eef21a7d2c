"""The table of `drift` on made-up J: verdicts follow the numbers."""

from __future__ import annotations

import numpy as np

from fedpg.paper import drift_table

ETAS = np.array([0.001, 0.01, 0.1])
NOISE = np.array([-0.01, 0.0, 0.01])


def made(ours: list[float], theirs: list[float], early: float = 0.0, **others: list[float]) -> drift_table.Found:
    """J of every label at K = 32, and of the first two at K = 4; `early` is the lead at the first look."""

    def looks(means: list[float], lead: float) -> np.ndarray:
        last = np.array(means)[:, None] + NOISE
        return np.stack([last - 5.0 + lead, last])

    found = {(label, k): looks(means, lead) for k in (4, 32) for label, means, lead in (("FedSVRPG-S", ours, early), ("PAvg", theirs, 0.0))}
    return found | {(label, 32): looks(means, 0.0)[1:] for label, means in others.items()}


def verdicts(found: drift_table.Found) -> dict[str, str]:
    return {row.what: row.verdict for row in drift_table.rows(ETAS, found)[0] if row.verdict}


def test_a_win():
    said = verdicts(made([17.0, 19.8, 19.75], [16.9, 19.7, 16.0], early=0.3))
    assert said == {
        "K=4: FedSVRPG-S - PAvg, worst eta (0.001)": "holds",
        "K=4: best over eta, FedSVRPG-S - PAvg": "holds",
        "K=32: FedSVRPG-S - PAvg, worst eta (0.001)": "holds",
        "K=32: best over eta, FedSVRPG-S - PAvg": "holds",
        "K=32, eta=0.1: FedSVRPG-S - PAvg, at least 1": "holds",
        "K=32, eta=0.1: lost by FedSVRPG-S from its best, less than 0.1": "holds",
        "K=32, after 3/10 of the rounds: FedSVRPG-S - PAvg, worst eta (0.001)": "holds",
    }


def test_the_other_variant_is_judged_by_the_same_rules_where_it_was_run():
    found = made([17.0, 19.8, 19.75], [16.9, 19.7, 16.0])
    found["FedHAPG-S", 32] = found["FedSVRPG-S", 32] - np.array([0.0, 0.3, 0.0])[:, None]
    assert {what: verdict for what, verdict in verdicts(found).items() if "FedHAPG-S" in what} == {
        "K=32: FedHAPG-S - PAvg, worst eta (0.01)": "does not hold (eta=0.01)",
        "K=32: best over eta, FedHAPG-S - PAvg": "holds",
        "K=32, eta=0.1: FedHAPG-S - PAvg, at least 1": "holds",
        "K=32, eta=0.1: lost by FedHAPG-S from its best, less than 0.1": "holds",
        "K=32, after 3/10 of the rounds: FedHAPG-S - PAvg, worst eta (0.01)": "does not hold (eta=0.01)",
    }


def test_what_does_not_hold_is_said():
    """Worse at a small step, best lower, too small a lead, too much lost, behind early on."""
    said = verdicts(made([16.8, 19.6, 16.5], [16.9, 19.7, 16.0], early=-1.0))
    assert len(said) == 7
    assert all(verdict.startswith("does not hold") for verdict in said.values())
    assert said["K=32: FedSVRPG-S - PAvg, worst eta (0.001)"] == "does not hold (eta=0.001, 0.01)"


def test_where_pavg_loses_nothing_there_is_a_note_instead():
    rows, notes = drift_table.rows(ETAS, made([17.0, 19.8, 19.9], [16.9, 19.7, 19.8]))
    assert not [row for row in rows if "lost" in row.what or "J at" in row.what]
    assert "loses less than 1 " in notes[0]


def test_every_algorithm_has_its_best_and_its_j_where_pavg_has_lost():
    found = made([17.0, 19.8, 19.75], [16.9, 19.7, 16.0], heavy=[18.0, 12.0, 11.0])
    found["heavy", 32][-1][2] = np.nan
    rows, notes = drift_table.rows(ETAS, found)
    table = {row.what: (round(row.ours, 3), row.n) for row in rows if "heavy" in row.what}
    assert table["K=32, heavy: best J (eta=0.001)"] == (18.0, 3)
    assert table["K=32, heavy: J at eta=0.1"][1] == 0
    assert "{'heavy, K=32': 3}" in notes[-1]


def test_pictures():
    names = {"FedHAPG-S": [1.0] * 3, "FedSVRPG-S, memory": [1.0] * 3, "PAvg, no baseline": [1.0] * 3}
    found = made([17.0, 19.8, 19.75], [16.9, 19.7, 16.0], **names)
    panels = drift_table.pictures(ETAS, found, ["FedSVRPG-S", "PAvg", "FedHAPG-S"])
    assert [[line.label for line in panel.lines] for panel in panels] == [
        ["FedSVRPG-S", "PAvg", "FedHAPG-S"],
        ["FedSVRPG-S, K=4", "FedSVRPG-S, K=32", "PAvg, K=4", "PAvg, K=32"],
        ["FedSVRPG-S", "FedSVRPG-S, memory"],
        ["FedSVRPG-S", "PAvg, no baseline"],
    ]
    np.testing.assert_allclose(panels[0].lines[1].y, [16.9, 19.7, 16.0])
    assert panels[0].lines[2].style == "o--"

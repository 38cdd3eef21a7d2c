"""The comparison with PAvg on made-up J: verdicts follow the numbers."""

import numpy as np
import pytest

from fedpg.paper import drift, fixed_points
from fedpg.paper.results import select

ETAS = np.array([0.001, 0.01, 0.1])
NOISE = np.array([-0.01, 0.0, 0.01])


def made(ours, theirs, early=0.0, **others):
    """J after the early and the last round; all seeds of all methods share the noise. `early` is the lead at the early one."""

    def twice(means, lead):
        last = np.array(means)[:, None] + NOISE
        return np.stack([last - 5.0 + lead, last])

    found = {("CALM", 0.2): twice(ours, early), ("PAvg", 1.0): twice(theirs, 0.0)}
    return found | {(name, 0.2): twice(means, 0.0) for name, means in others.items()}


def outcomes(found, k=32):
    rows = drift.judge(ETAS, found, k, (30, 100))
    return {(row.quantity, row.method, row.round): row.verdict.outcome for row in rows if row.verdict}


WON = {
    ("objective at the worst eta", "CALM", 100): "holds",
    ("best objective", "CALM", 100): "holds",
    ("objective at the worst eta", "CALM", 30): "holds",
    ("objective", "CALM", 100): "holds",
    ("loss", "CALM", 100): "holds",
}


def test_a_win():
    assert outcomes(made([17.0, 19.8, 19.75], [16.9, 19.7, 16.0], early=0.3)) == WON
    assert list(outcomes(made([17.0, 19.8, 19.75], [16.9, 19.7, 16.0]), k=4).values()) == ["holds", "holds"]


def test_everything_that_does_not_hold_is_found():
    """Worse at a small step, best lower, too small a lead, too much lost, behind early on."""
    assert outcomes(made([16.8, 19.6, 16.5], [16.9, 19.7, 16.0], early=-1.0)) == dict.fromkeys(WON, "fails")


def test_differences_are_paired_and_unclear_ones_are_said():
    found = made([17.0, 19.8, 19.75], [16.9, 19.7, 19.8])
    rows = drift.judge(ETAS, found, 32, (30, 100))
    (worst,) = select(rows, quantity="objective at the worst eta", round=100)
    assert (worst.mean, worst.low, worst.high, worst.eta) == (pytest.approx(-0.05), pytest.approx(-0.05), pytest.approx(-0.05), 0.1)
    found["CALM", 0.2][-1][2] += 100.0 * NOISE  # noise of its own
    (worst,) = select(drift.judge(ETAS, found, 32, (30, 100)), quantity="objective at the worst eta", round=100)
    assert worst.verdict.outcome == "unclear"
    assert not select(rows, quantity="loss"), "PAvg loses nothing on this grid"


def test_every_method_has_its_best_and_its_j_where_pavg_has_lost():
    found = made([17.0, 19.8, 19.75], [16.9, 19.7, 16.0], heavy=[18.0, 12.0, 11.0])
    found["heavy", 0.2][-1][2] = np.nan
    rows = drift.judge(ETAS, found, 32, (30, 100))
    (best,) = select(rows, method="heavy", quantity="best objective")
    (there,) = select(rows, method="heavy", quantity="objective")
    assert (best.mean, best.eta, best.n) == (18.0, 0.001, 3)
    assert (there.mean, there.eta, there.n) == (None, 0.1, 0)
    assert select(rows, method="PAvg", quantity="loss")[0].mean == pytest.approx(3.7)
    assert drift.failures({"heavy": found["heavy", 0.2][-1]}) == [
        "Runs that ended in numbers that are not finite, and are left out: {'heavy': 3}."
    ]
    assert drift.failures({"PAvg": found["PAvg", 1.0]}) == []


@pytest.mark.parametrize(("amount", "at"), [(0.2, 2), (0.29, 2), (0.31, None)])
def test_a_loss_is_beyond_the_best_step_only(amount, at):
    theirs = np.array([0.9, 4.8, 4.5])[:, None] + NOISE
    assert drift.first_loss(theirs, amount) == at
    np.testing.assert_allclose(drift.loss(theirs, 2).mean, 0.3)


def test_a_step_size_with_failed_seeds_can_still_be_the_best():
    assert drift.best(np.array([[1.0, 1.0], [3.0, 4.0], [np.nan, 3.0]])) == 1
    assert drift.best(np.array([[1.0, 1.0], [3.0, np.nan], [np.nan, np.nan]])) == 1


def test_bests_may_be_at_different_steps():
    found = made([1.0, 5.0, 6.0], [0.9, 4.8, 4.5])
    best = drift.at_best(ETAS, found["CALM", 0.2][-1], found["PAvg", 1.0][-1])
    assert (best.mean, best.eta, best.against_eta) == (pytest.approx(1.2), 0.1, 0.01)


def test_what_is_run(monkeypatch):
    """Every K has PAvg and CALM; at K = 32 all others; the printed algorithms start from u_0 of ceil(K/(R beta^2)) batches."""
    asked = []

    def measure(task, method, settings, *, seeds, root, rounds, **fixed):
        asked.append((task.local_steps, method.name, len(settings["beta"]) // 2, fixed.get("u0_batches")))
        values = 18.0 + np.log(settings["local_lr"])[:, None, None] * np.ones((1, seeds, len(rounds))) + np.arange(seeds)[:, None] / 10
        return type("C", (), {"objective": values})

    monkeypatch.setattr(drift, "measure", measure)
    monkeypatch.setattr(fixed_points, "measured", lambda place, other, **rest: ([], [], "still"))
    sizes = drift.SCALES["full"] | {"etas": (0.01, 0.1), "seeds": 2, "local_steps": (1, 32)}
    result = drift.run(lambda what, share: None, **sizes)
    assert [entry for entry in asked if entry[0] == 1] == [(1, "PAvg", 1, None), (1, "CALM", 1, None), (1, "FedSVRPG-M", 1, 1)]
    many = {name: (betas, u0) for k, name, betas, u0 in asked if k == 32}
    assert len(many) == 3 + 3 + 2
    assert (many["CALM"], many["FedHAPG-M"], many["PAvg, no baseline"]) == ((3, None), (1, 8), (1, None))
    assert len(select(result.rows, quantity="best objective", against="")) == len(many) + 2
    assert result.notes == ["still", "still"]

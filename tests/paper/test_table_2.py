"""Table 2: the published numbers, and what is said about ours."""

import numpy as np
import pytest

from fedpg.paper import table_2
from fedpg.paper.results import Row, select
from fedpg.paper.verdict import Verdict


def test_a_smaller_beta_is_better_in_every_published_column():
    values = np.array([[mean for mean, _ in cells] for cells in table_2.PUBLISHED.values()])
    assert values.shape == (5, 6)
    assert (np.diff(values, axis=0) < 0).all()


@pytest.mark.parametrize(("near", "outcome"), [(28, "holds"), (27, "fails")])
def test_twenty_eight_of_thirty_cells_are_needed(near, outcome):
    rows = [
        Row(quantity="objective", method=name, verdict=Verdict("holds" if i < near else "fails", "agrees", 0.0))
        for name in ("heavy ball", "PAvg")
        for i in range(30)
    ]
    found = table_2.agreement(rows)
    assert (found.mean, found.n, found.verdict.outcome, found.verdict.bound) == (near, 30, outcome, 28)


def test_every_cell_stands_beside_its_published_one(monkeypatch):
    """J that is the published number plus half its error, for one kappa."""
    asked = []

    def measure(task, method, settings, *, seeds, like, federation):
        asked.append((task.agents, task.local_steps, task.rounds, method.name, method.options.get("u0_batches"), task.heterogeneity))
        column = np.array([table_2.PUBLISHED[beta][table_2.KAPPAS.index(task.heterogeneity)] for beta in settings["beta"]])
        values = column[:, :1] + 0.5 * column[:, 1:] + np.linspace(-1e-3, 1e-3, seeds)
        return type("C", (), {"objective": values[..., None]})

    monkeypatch.setattr(table_2, "measure", measure)
    result = table_2.run(lambda what, share: None, seeds=3, kappas=(0.2,))
    assert asked[1] == (20, 32, 6, "FedSVRPG-M", 32, 0.2)
    (cell,) = select(result.rows, method="FedSVRPG-M", beta=0.5)
    assert (cell.mean, cell.published, cell.error, cell.heterogeneity) == (pytest.approx(7.238), 7.208, 0.06, 0.2)
    assert {row.verdict.outcome for row in result.rows} == {"holds"}
    assert len(result.rows) == 1 + 3 * 5
    assert [point.mean for point in result.points] == [table_2.PUBLISHED[beta][1][0] for beta in table_2.BETAS]


@pytest.mark.slow
def test_heavy_ball_wins_and_the_printed_algorithm_does_not(monkeypatch):
    """At beta = 1 both are PAvg; at beta = 0.1 heavy ball is well above it and the printed algorithm is not."""
    monkeypatch.setattr(table_2, "METHODS", table_2.METHODS[:2])
    rows = table_2.run(lambda what, share: None, seeds=12, kappas=(0.0,)).rows
    ours = {(row.method, row.beta): row.mean for row in rows}
    plain = ours["heavy ball", 1.0]
    assert abs(ours["FedSVRPG-M", 1.0] - plain) < 1e-3
    assert ours["heavy ball", 0.1] > plain + 0.5 > ours["FedSVRPG-M", 0.1]

"""Table 2: the published numbers, what is said about ours, and that the columns differ as they must."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.paper import table_2
from fedpg.paper.outcome import Row


def test_the_published_table_is_complete():
    assert {beta: len(cells) for beta, cells in table_2.PUBLISHED.items()} == dict.fromkeys(table_2.BETAS, 6)
    values = np.array([[mean for mean, _ in cells] for cells in table_2.PUBLISHED.values()])
    assert (np.diff(values, axis=0) < 0).all()  # a smaller beta is better in every column


def test_twenty_eight_of_thirty_cells_are_needed():
    def verdict(near):
        rows = [Row("", 0.0, 0.0, 0.0, 1, verdict="agrees (1.0 se)")] * near + [Row("", 0.0, 0.0, 0.0, 1, verdict="differs (4.0 se)")] * (
            30 - near
        )
        return table_2.verdict_on(rows).verdict

    assert (verdict(28), verdict(27)) == ("holds", "does not hold")


@pytest.mark.slow
def test_a_small_table(monkeypatch):
    """At beta = 1 all columns are PAvg; at beta = 0.1 heavy ball is well above it and the printed algorithm is not."""
    monkeypatch.setitem(table_2.SCALES, "smoke", table_2.Scale(12, (0.0,)))
    monkeypatch.setattr(table_2, "COLUMNS", {name: table_2.COLUMNS[name] for name in ("heavy-ball", "printed")})
    told = []
    found = table_2.run("smoke", lambda what, share: told.append(share))
    ours = {row.what: row.ours for row in found.rows}
    plain = ours["heavy ball, kappa 0, beta 1"]
    assert abs(ours["as printed, kappa 0, beta 1"] - plain) < 1e-3
    assert ours["heavy ball, kappa 0, beta 0.1"] > plain + 0.5 > ours["as printed, kappa 0, beta 0.1"]
    assert len(found.rows) == 1 + 2 * 5
    assert told == [0.0, 0.5]
    assert [line.label for line in found.panels[0].lines][-1].startswith("published")

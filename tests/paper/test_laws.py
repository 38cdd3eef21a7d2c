"""Laws of samples against eps, on runs with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.paper.laws import law, times_fewer
from fedpg.paper.rates import Measured

START = 8.0


def test_law_fits_only_what_got_somewhere() -> None:
    """The flat beginning, above |grad J(theta_0)|^2 / 8, is left out; of too few the three longest are taken."""
    run = Measured(
        rounds=np.arange(2),
        running=np.full((5, 2, 2), START),
        averages=np.repeat(START * np.array([[0.9], [0.8], [1 / 16], [1 / 32], [1 / 64]]), 2, axis=1),
        per_agent=np.array([1.0, 2.0, 4.0, 8.0, 16.0]),
        effective=np.ones((5, 2)),
        largest=np.ones((5, 2)),
    )
    found = law(run, agents=3)
    np.testing.assert_allclose(found.samples, [12.0, 24.0, 48.0])
    np.testing.assert_allclose(found.eps, START / np.array([16.0, 32.0, 64.0]))
    assert float(found.slope.value) == pytest.approx(1.0)
    assert len(law(run._replace(running=run.running / 10), agents=3).samples) == 3


def test_times_fewer_compares_at_the_eps_of_the_longest_plain_run() -> None:
    """Momentum's eps = (3 cost)^(-2/3) against cost^(-1/2): at cost 4096 the eps 1/64 costs 512/3."""
    per_agent = np.array([64.0, 512.0, 4096.0])
    ones = np.ones((3, 4))
    bold = Measured(per_agent, ones[..., None], (3.0 * per_agent[:, None]) ** (-2 / 3) * ones, per_agent, ones, ones)
    plain = bold._replace(averages=per_agent[:, None] ** -0.5 * ones)
    eps, ratio = times_fewer(bold, plain)
    assert eps == pytest.approx(1 / 64)
    assert [float(x) for x in ratio[:3]] == pytest.approx([24.0] * 3)

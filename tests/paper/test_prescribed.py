"""The prescribed steps are the theorem's: its powers of N, K and R, and the numbers of `fedpg.theory`."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.paper import prescribed
from fedpg.paper.grounds import Known
from fedpg.theory import Constants, prescribe
from fedpg.theory import constants as k

KNOWN = Known(smoothness=1.0, spread=3.0, sigma=10.0, gap=4.0, start=8.0)
R = np.array([1000, 8000])


def test_same_numbers_as_the_theory() -> None:
    """With its worst-case constants handed in as known, beta, lambda, B and the stated limits on eta are those of `prescribe`."""
    c = Constants(horizon=3, agents=4, local_steps=2, rounds=10**7, sigma=30.0, delta=2.0, g0=5.0)
    theory = prescribe(c)
    own = prescribed.theorem(Known(k.Lbar(c), k.Lbar(c), 30.0, 2.0, 5.0), 4, 2, np.array([10**7]), stated=True)
    assert own.beta[0] == pytest.approx(theory.beta)
    assert own.global_lr[0] == pytest.approx(theory.global_lr)
    assert own.batches[0] == theory.B
    assert own.local_lr[0] == pytest.approx(min(limit.value for limit in theory.conditions if limit.name.startswith("theorem")))


def test_powers() -> None:
    """beta ~ R^(-2/3), lambda ~ R^(-1/3), both times 4 with 4 N and R / 4; B N stays."""
    one, many = prescribed.theorem(KNOWN, 1, 2, R), prescribed.theorem(KNOWN, 4, 2, R // 4)
    np.testing.assert_allclose(one.beta[0] / one.beta[1], 4.0)
    np.testing.assert_allclose(one.global_lr[0] / one.global_lr[1], 2.0)
    np.testing.assert_allclose(many.beta / one.beta, 4.0)
    np.testing.assert_allclose(many.global_lr / one.global_lr, 4.0)
    np.testing.assert_allclose(4 * many.batches, one.batches, atol=4.0)
    assert not one.capped.any()


def test_capped_when_the_noise_is_small() -> None:
    steps = prescribed.theorem(KNOWN._replace(sigma=0.1), 64, 2, R, boldness=2.0)
    assert steps.capped.all()
    np.testing.assert_allclose(steps.global_lr, 2.0 / 24.0)


def test_the_fourth_condition_binds_for_small_beta_only() -> None:
    stated, own = prescribed.theorem(KNOWN, 1, 2, R, stated=True), prescribed.theorem(KNOWN, 1, 2, R)
    assert (own.local_lr < 0.2 * stated.local_lr).all()
    np.testing.assert_allclose(own.local_lr, own.beta / (1.0 - own.beta + own.global_lr * own.beta * R) / 6.0)
    few = np.array([2])
    one, same = (
        prescribed.theorem(KNOWN._replace(sigma=2.0), 4, 2, few),
        prescribed.theorem(KNOWN._replace(sigma=2.0), 4, 2, few, stated=True),
    )
    assert one.beta[0] == 1.0
    assert one.local_lr[0] == same.local_lr[0]


def test_plain_balances_its_two_terms() -> None:
    """At its lambda Delta/(lambda R) = L lambda sigma^2 / (2 N K), unless capped."""
    steps = prescribed.plain(KNOWN, 4, 2, R)
    np.testing.assert_allclose(4.0 / (steps.global_lr * R), steps.global_lr * 100.0 / (2.0 * 8))
    assert steps.batches.max() == 0.0
    assert prescribed.plain(KNOWN._replace(sigma=1e-3), 4, 2, R).global_lr.max() == 0.5


def test_search_grids_surround_the_prescription() -> None:
    bold = prescribed.theorem(KNOWN, 4, 2, R, prescribed.BOLD)
    grid = prescribed.around(KNOWN, 4, 2, int(R[-1]))
    for field in ("beta", "global_lr"):
        inside = getattr(bold, field)
        assert getattr(grid, field).min() < inside.min() < inside.max() < getattr(grid, field).max()
    same = np.isclose(grid.beta, bold.beta[1])
    np.testing.assert_allclose(grid.batches[same], bold.batches[1], atol=1.0)
    plain = prescribed.around_plain(KNOWN, 4, 2, int(R[-1]))
    assert plain.global_lr[2] == pytest.approx(prescribed.plain(KNOWN, 4, 2, R).global_lr[1])
    assert len(prescribed.joined(grid, plain).beta) == len(grid.beta) + len(plain.beta)

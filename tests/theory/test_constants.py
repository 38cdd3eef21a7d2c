"""The theorems' constants and prescriptions against numbers computed by hand, and their scaling laws."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fedpg.errors import UserError
from fedpg.theory import ERRATA, Constants, complete, prescribe
from fedpg.theory import constants as k

# H = 2, R_max = 1, gamma = 1/2, G = M = W = sigma = 1; so H R_max / (1 - gamma) = 4.
ONES = Constants(G=1.0, M=1.0, W=1.0, sigma=1.0, horizon=2, discount=0.5, r_max=1.0, agents=2, local_steps=4, rounds=1, delta=1.5, g0=16.0)


def values(prescription):
    return prescription.conditions


def halved(smoothness):
    """ONES with the delta that makes beta = 1/2: N K S^2 delta^2 / (sigma^4 R^2) = 8 / 64 = 1/8."""
    return replace(ONES, delta=1.0 / (8.0 * smoothness))


@pytest.mark.parametrize(
    ("function", "squared"),
    [
        (k.L, 12.0**2),  # 4 (1 + 2)
        (k.L_g, 4.0**2),
        (k.C_g, 4.0**2),
        (k.C_w, 20.0**2),  # 2 (4 + 1) 2; so C_w C_g^2 = 320
        (k.L1, 7920.0),  # 144 + 24 * 320 + 6 * 16
        (k.L2, 656.0),  # 16 + 640
        (k.L3, 672.0),  # 640 + 32
        (k.Lbar, 7920.0),
        (k.L4, 80.0),  # (4 + 1) / (1/2)^4
        (k.Lhat, 608.0),  # 2 * 144 + 4 * 80
    ],
)
def test_constants_by_hand(function, squared):
    assert function(ONES) ** 2 == pytest.approx(squared)


def test_bounds_stand_in_for_what_is_not_known():
    c = complete(replace(ONES, sigma=None, delta=None, g0=None))
    assert (c.delta, c.g0) == (1.5, 16.0)  # 1 + 1/2; C_g^2
    assert c.sigma == pytest.approx(math.sqrt(32.0))  # sqrt(W + 1) C_g
    assert complete(ONES) == ONES


def test_fedsvrpg_m_by_hand():
    s = math.sqrt(7920.0)
    p = prescribe(halved(s), "fedsvrpg-m")
    assert p.smoothness == pytest.approx(s)
    assert (p.beta, p.B) == (pytest.approx(0.5), 16)  # 4 / (1 * 1/4)
    assert p.global_lr == pytest.approx(1.0 / (24.0 * s))  # the other branch is sqrt(4/162) / s
    assert (p.bound_noise, p.bound_start, p.bound) == pytest.approx((1 / 16, 1 / 8, 3 / 16))  # (1/64)^(2/3); s delta / R
    assert values(p) == pytest.approx(
        {
            "theorem-start": math.sqrt(3 / 16) / (4 * s),  # delta / (g0 lambda R) = (1/8) / (16/24)
            "theorem-agents": 0.5 / (4 * s),  # (1/4)^(1/2)
            "theorem-samples": 0.5 / (4 * s),  # (1/16)^(1/4)
            # bracket: 289/288 + 8e (1/(4s))^2, since lambda beta L R = 12 / (48 s)
            "lemma-first-steps": 0.5 / (4 * s * math.sqrt(289 * math.e + 144 * math.e**2 / 7920)),
            "lemma-drift-noise": 12 / (32 * math.e**2 * 672 * 4),
            "lemma-drift-smoothness": 1 / 48,
        }
    )
    assert p.binding == "lemma-drift-noise"
    assert p.local_lr == min(values(p).values())


def test_fedhapg_m_by_hand():
    s = math.sqrt(608.0)
    p = prescribe(halved(s), "fedhapg-m")
    assert (p.beta, p.B, p.global_lr) == pytest.approx((0.5, 16, 1.0 / (24.0 * s)))
    assert values(p)["lemma-first-steps"] == pytest.approx(0.5 / (4 * s * math.sqrt(289 * math.e + 144 * math.e**2 / 608)))
    assert values(p)["lemma-drift-noise"] == pytest.approx(12 / (32 * math.e**2 * 80 * 4))


@pytest.mark.parametrize(("algorithm", "divisor"), [("fedsvrpg-m", 162.0), ("fedhapg-m", 72.0)])
def test_global_lr_shrinks_with_beta_once_beta_is_small(algorithm, divisor):
    p = prescribe(replace(ONES, agents=1, local_steps=1, rounds=10**9), algorithm)
    assert p.global_lr == pytest.approx(math.sqrt(p.beta / divisor) / p.smoothness)


@pytest.mark.parametrize("algorithm", tuple(ERRATA))
def test_scaling_laws(algorithm):
    small, large = (prescribe(Constants(rounds=rounds), algorithm) for rounds in (10**9, 8 * 10**9))
    assert small.beta / large.beta == pytest.approx(4.0)  # R^(-2/3)
    # The forgotten condition falls as R^(-2/3), the theorem's own as R^(-1/3) at most: it always binds in the end.
    assert values(small)["lemma-first-steps"] / values(large)["lemma-first-steps"] == pytest.approx(4.0, rel=1e-3)
    assert values(small)["theorem-agents"] / values(large)["theorem-agents"] == pytest.approx(2.0)
    assert values(small)["theorem-start"] / values(large)["theorem-start"] == pytest.approx(2.0)
    few, many = (prescribe(Constants(agents=agents), algorithm) for agents in (1, 8))
    assert few.bound_noise / many.bound_noise == pytest.approx(4.0)  # N^(-2/3)
    assert few.bound_start == many.bound_start  # no speed-up there
    for p in (small, large, few, many):
        assert p.B - 1 < p.constants.local_steps / (p.constants.rounds * p.beta**2) <= p.B


def test_beta_stops_at_one():
    p = prescribe(Constants(rounds=6))
    assert (p.beta, p.B) == (1.0, 6)  # ceil(32 / 6)


BINDING = [({}, "lemma-first-steps"), ({"rounds": 6}, "lemma-drift-noise"), ({"agents": 10**9, "rounds": 6}, "theorem-agents")]


@pytest.mark.parametrize(("changes", "binding"), BINDING)
def test_each_kind_of_condition_can_bind(changes, binding):
    p = prescribe(Constants(**changes))
    assert p.binding == binding
    if binding.startswith("lemma"):
        assert p.local_lr < 0.1 * min(value for name, value in values(p).items() if name.startswith("theorem"))


@pytest.mark.parametrize(
    "changes",
    [{"horizon": 0}, {"agents": 2.5}, {"rounds": True}, {"G": 0.0}, {"sigma": math.nan}, {"delta": math.inf}, {"g0": -1.0}, {"W": -0.1},
     {"discount": 1.0}, {"local_steps": 10**400}],
)  # fmt: skip
def test_impossible_values_get_one_line(changes):
    with pytest.raises(UserError, match=next(iter(changes))) as caught:
        prescribe(replace(ONES, **changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("algorithm", tuple(ERRATA))
@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_the_ends_of_the_range_stay_finite(algorithm, size):
    count = max(1, int(size))
    for sigma in (1e-12, 1e12):
        p = prescribe(Constants(size, size, size, sigma, count, 1 - 1e-16, size, count, count, count, size, size), algorithm)
        assert all(0 < x < math.inf for x in (p.beta, p.global_lr, p.local_lr, p.B, p.bound))


def test_applied_errata_are_those_of_the_page():
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "theory.md").read_text()
    marked = dict(re.findall(r"^\| `([\w-]+)` \|.*\| (applied.*|none) \|$", page, re.MULTILINE))
    assert len(marked) >= 20
    assert {name for name, effect in marked.items() if effect == "applied"} == set(ERRATA["fedsvrpg-m"])
    assert {name for name, effect in marked.items() if effect != "none"} == set(ERRATA["fedhapg-m"])

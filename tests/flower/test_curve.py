"""The learning curve on the status page, against places worked out by hand."""

from __future__ import annotations

import pytest

from fedpg.flower.curve import curve, ticks
from fedpg.flower.snapshot import Point


def test_the_curve_is_where_the_numbers_are():
    points = [Point(0, 0.0, -10.0), Point(5, 50.0, None), Point(10, 100.0, 50.0), Point(20, None, None)]
    assert ticks(-10.0, 100.0) == [-50.0, 0.0, 50.0, 100.0]
    text = curve(points)
    # 1000 wide over rounds 0 to 10; 100 high over -50 to 100
    assert 'class="mean" d="M0.0 66.67L500.0 33.33L1000.0 0.00"' in text
    assert 'class="worst" d="M0.0 73.33L1000.0 33.33"' in text
    assert "<span>100</span><span>50</span><span>0</span><span>-50</span>" in text
    assert curve([Point(0, None, None)]) == curve([]) == ""
    assert 'd="M0.0 50.00"' in curve([Point(3, 5.0, 5.0)])


@pytest.mark.parametrize(("low", "high"), [(0, 0), (5, 5), (1e16, 1e16 + 2), (-3, 1e-5), (2.037, 2.0476), (-1e300, 1e300), (0, 1e-320)])
def test_ticks_enclose_what_they_are_for(low, high):
    found = ticks(low, high)
    assert found[0] <= low <= high <= found[-1]
    assert 3 <= len(found) <= 7
    assert found == sorted(set(found))

"""Verdicts follow from numbers, bounds and tolerances."""

import pytest

from fedpg.paper import verdict
from fedpg.report.statistics import Estimate


def found(mean, low, high):
    return Estimate(mean, low, high, 9)


@pytest.mark.parametrize(
    ("rule", "cases"),
    [
        (
            lambda e: verdict.above(e, 1.0),
            {(1.2, 1.1, 1.3): "holds", (1.2, 0.9, 1.3): "unclear", (0.8, 0.7, 0.9): "fails", (1.0, 1.0, 1.0): "unclear"},
        ),
        (lambda e: verdict.below(e, 1.0), {(0.8, 0.7, 0.9): "holds", (1.0, 0.9, 1.1): "unclear", (1.2, 1.1, 1.3): "fails"}),
        (lambda e: verdict.at_least(e, 0.9), {(0.9, 0.1, 2.0): "holds", (0.89, 0.1, 2.0): "fails"}),
        (lambda e: verdict.at_most(e, 0.5), {(0.5, 0.1, 2.0): "holds", (0.51, 0.1, 2.0): "fails"}),
        (
            lambda e: verdict.near(e, -1.0, 0.15),
            {(-0.97, -1.02, -0.93): "holds", (-0.97, -1.02, -0.8): "unclear", (-0.7, -0.8, -0.6): "fails"},
        ),
        (lambda e: verdict.near(e, -1.0, 0.15), {(float("nan"),) * 3: "fails"}),
        (lambda e: verdict.covers(e, 2.0, 0.1), {(1.5, 1.2, 1.95): "holds", (1.5, 1.2, 1.8): "fails"}),
        (lambda e: verdict.agrees(e, 1.0, 0.1), {(1.29, 0.0, 9.0): "holds", (1.31, 0.0, 9.0): "fails"}),
    ],
)
def test_rules(rule, cases):
    assert {case: rule(found(*case)).outcome for case in cases} == cases


def test_the_tolerance_is_part_of_the_verdict():
    assert verdict.near(found(1.0, 1.0, 1.0), 1.5, 0.2) == verdict.Verdict("fails", "near", 1.5, 0.2)
    assert verdict.agrees(found(1.0, 1.0, 1.0), 1.0, 0.25) == verdict.Verdict("holds", "agrees", 1.0, 3.0, 0.25)


def test_not_worse_needs_every_difference():
    """A small clear loss beside a large unclear one is a failure."""
    better, unclear, worse = found(0.1, 0.05, 0.2), found(-0.5, -1.5, 0.5), found(-0.01, -0.02, -0.005)
    assert [verdict.not_worse([better, other]).outcome for other in (better, unclear, worse)] == ["holds", "unclear", "fails"]
    assert verdict.not_worse([unclear, worse]).outcome == "fails"

"""Verdicts: whether a measured number bears out a claim, together with the rule and the tolerance it was judged by."""

from typing import Literal

import msgspec

from fedpg.report.statistics import Estimate


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one test.

    Attributes:
        outcome: unclear means that the interval allows both answers.
        rule: what was required of the number, relative to `bound`.
        bound: the number it is compared with.
        tolerance: how far it may be from `bound`, in multiples of `unit`.
        unit: the standard error that distances are measured in, for `agrees`.
        paper: whether the paper claims that the rule holds; None where it claims nothing.
    """

    outcome: Literal["holds", "unclear", "fails"]
    rule: Literal["above", "below", "at least", "at most", "near", "covers", "agrees"]
    bound: float
    tolerance: float = 0.0
    unit: float = 1.0
    paper: bool | None = None


def _outcome(holds: bool, fails: bool) -> Literal["holds", "unclear", "fails"]:
    return "holds" if holds else "fails" if fails else "unclear"


def above(found: Estimate, bound: float = 0.0) -> Verdict:
    """The whole interval lies above `bound`; it fails if the whole interval lies below."""
    return Verdict(_outcome(found.low > bound, found.high < bound), "above", bound)


def below(found: Estimate, bound: float) -> Verdict:
    """The whole interval lies below `bound`; it fails if the whole interval lies above."""
    return Verdict(_outcome(found.high < bound, found.low > bound), "below", bound)


def at_least(found: Estimate, bound: float) -> Verdict:
    """The mean is at least `bound`, whatever the interval."""
    return Verdict(_outcome(found.mean >= bound, True), "at least", bound)


def at_most(found: Estimate, bound: float) -> Verdict:
    """The mean is at most `bound`, whatever the interval."""
    return Verdict(_outcome(found.mean <= bound, True), "at most", bound)


def not_worse(differences: list[Estimate]) -> Verdict:
    """No difference has a mean below 0; it fails if any whole interval lies below."""
    clear = any(found.high < 0.0 for found in differences)
    return Verdict(_outcome(not clear and all(not found.mean < 0.0 for found in differences), clear), "at least", 0.0)


def near(found: Estimate, bound: float, tolerance: float) -> Verdict:
    """The whole interval is within `tolerance` of `bound`; it fails if the mean is not."""
    inside = bound - tolerance <= found.low and found.high <= bound + tolerance
    return Verdict(_outcome(inside, not abs(found.mean - bound) <= tolerance), "near", bound, tolerance)


def covers(found: Estimate, bound: float, tolerance: float = 0.0) -> Verdict:
    """The interval, widened by `tolerance` on both sides, contains `bound`."""
    return Verdict(_outcome(found.low - tolerance <= bound <= found.high + tolerance, True), "covers", bound, tolerance)


def agrees(found: Estimate, published: float, error: float, errors: float = 3.0) -> Verdict:
    """The mean is within so many standard `errors` of a published number."""
    return Verdict(_outcome(abs(found.mean - published) <= errors * error, True), "agrees", published, errors, error)

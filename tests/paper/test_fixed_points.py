"""Where methods settle: laws on made-up values, and measured values beside the fixed point in closed form."""

import jax
import numpy as np
import pytest

from fedpg.keys import Purpose, agent_key
from fedpg.paper import fixed_points
from fedpg.paper.fixed_points import QUADRATICS, Floor
from fedpg.paper.method import CALM, PAVG
from fedpg.quadratic import bowls

ETAS, BETAS, SCALE = np.array([0.01, 0.02, 0.04]), (0.1, 0.3, 1.0), np.array([1.0, 3.0, 5.0])


def made(power, betas=BETAS, length=2.0, steps=8):
    """Values of the form scale (eta K)^length beta^power, for three seeds."""
    etas = ETAS * 8 / steps
    at = (np.array(betas)[:, None, None] ** power) * ((etas * steps) ** length)[:, None] * SCALE
    return Floor(np.array(betas), etas, at, at)


def outcomes(found, pavg=None):
    rows = fixed_points.laws("here", pavg or {8: made(0.0, (1.0,))}, found)
    return {(row.quantity, row.method, row.beta): row.verdict.outcome for row in rows}


def test_values_that_follow_the_laws():
    said = outcomes({"FedSVRPG-M": made(0.0), "CALM": made(2.0)})
    assert len(said) == 1 + 2 * 2
    assert set(said.values()) == {"holds"}


@pytest.mark.parametrize(("found", "pavg", "denied"), [
    ({"CALM": made(1.0)}, None, {("exponent in beta", "CALM", None), ("gradient at rest", "CALM", 0.1)}),
    ({"FedSVRPG-M": made(2.0)}, None, {("exponent in beta", "FedSVRPG-M", None), ("gradient at rest", "FedSVRPG-M", 0.1)}),
    ({}, {8: made(0.0, (1.0,), length=1.0)}, {("exponent in eta K", "PAvg", None)}),
    ({}, {8: made(0.0, (1.0,)), 32: made(0.0, (1.0,), steps=32)}, {("gradient at rest", "PAvg", None)}),
])  # fmt: skip
def test_values_that_do_not(found, pavg, denied):
    assert {key for key, outcome in outcomes(found, pavg).items() if outcome == "fails"} == denied


def test_at_the_same_eta_k_only_one_minus_one_over_k_is_left():
    few, many = made(0.0, (1.0,)), made(0.0, (1.0,), steps=32)
    many = many._replace(at=many.at * ((31 / 32) / (7 / 8)) ** 2)
    assert set(outcomes({}, {8: few, 32: many}).values()) == {"holds"}


def fixed_point(curvature, centre, eta, steps):
    """Where PAvg stays: mean_i [(I - eta A_i)^K - I] (theta - c_i) = 0."""
    pulls = [np.linalg.matrix_power(np.eye(4) - eta * a, steps) - np.eye(4) for a in curvature]
    return np.linalg.solve(sum(pulls), sum(pull @ c for pull, c in zip(pulls, centre, strict=True)))


def test_measured_values_are_those_of_the_fixed_point():
    """PAvg's against closed form, for every federation and step-size; beta = 0.5 of CALM has a quarter of it to leading order."""
    pavg, half = (fixed_points.settle(QUADRATICS, method, betas, rounds=150, seeds=2) for method, betas in ((PAVG, (1.0,)), (CALM, (0.5,))))
    assert pavg.at.shape == (1, 4, 2)
    np.testing.assert_allclose(pavg.before, pavg.at, rtol=1e-4)
    for seed in range(2):
        with jax.enable_x64(True):
            agents = jax.tree.map(np.asarray, bowls(agent_key(jax.random.key(0), seed, 0, 0, Purpose.AGENTS), 5, 0.5))
        for number, eta in enumerate(pavg.etas):
            theta = fixed_point(*agents, float(eta), fixed_points.K)
            slope = np.mean([-a @ (theta - c) for a, c in zip(*agents, strict=True)], axis=0)
            np.testing.assert_allclose(pavg.at[0, number, seed], slope @ slope, rtol=1e-4)
    np.testing.assert_allclose(half.at / pavg.at, 0.25, rtol=0.1)


def test_points_and_the_note_come_from_the_same_values(monkeypatch):
    def settle(place, method, betas, **sizes):
        found = made(2.0, betas, steps=sizes.get("local_steps", 8))
        return found._replace(before=1.02 * found.at)

    monkeypatch.setattr(fixed_points, "settle", settle)
    _, points, note = fixed_points.measured(QUADRATICS, (2,), BETAS, rounds=3, seeds=3)
    assert "at most 0.02 of itself" in note
    assert {(point.method, point.beta) for point in points} == {
        ("PAvg", 1.0),
        *((name, b) for name in ("FedSVRPG-M", "CALM") for b in BETAS),
    }
    assert points[0].mean == pytest.approx((8 * ETAS[0]) ** 2 * 15 ** (1 / 3), rel=1e-5)

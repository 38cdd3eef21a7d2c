"""Where methods settle: measured values beside the fixed point in closed form, and CALM's zero."""

import jax
import numpy as np

from fedpg.keys import Purpose, agent_key
from fedpg.paper import fixed_points
from fedpg.paper.fixed_points import QUADRATICS
from fedpg.paper.method import PAVG
from fedpg.paper.results import select
from fedpg.quadratic import bowls

K = 8


def fixed_point(curvature, centre, eta, steps):
    """Where PAvg stays: mean_i [(I - eta A_i)^K - I] (theta - c_i) = 0."""
    pulls = [np.linalg.matrix_power(np.eye(4) - eta * a, steps) - np.eye(4) for a in curvature]
    return np.linalg.solve(sum(pulls), sum(pull @ c for pull, c in zip(pulls, centre, strict=True)))


def test_measured_values_are_those_of_the_fixed_point():
    """PAvg's against closed form, for every federation and step-size."""
    found = fixed_points.settle(QUADRATICS, PAVG, K, rounds=150, seeds=2)
    assert found.shape == (4, 2)
    for seed in range(2):
        with jax.enable_x64(True):
            agents = jax.tree.map(np.asarray, bowls(agent_key(jax.random.key(0), seed, 0, 0, Purpose.AGENTS), 10, 0.5))
        for number, path in enumerate(QUADRATICS.paths):
            theta = fixed_point(*agents, path / K, K)
            slope = np.mean([-a @ (theta - c) for a, c in zip(*agents, strict=True)], axis=0)
            np.testing.assert_allclose(found[number, seed], slope @ slope, rtol=1e-4)


def test_every_floor_stands_beside_its_verdict(monkeypatch):
    """Floors of (eta K)^2 for all but CALM, which rests at 1e-30 with all agents and at 1e-10 with some."""

    def settle(place, method, local_steps, *, beta=None, participation, rounds, seeds):
        scatter = np.linspace(0.9, 1.1, seeds)
        if method.name == "CALM":
            return np.full((4, 1), 1e-30 if participation.share == 1.0 else 1e-10) * scatter
        return np.array(place.paths)[:, None] ** 2 * scatter

    monkeypatch.setattr(fixed_points, "settle", lambda *a, **k: settle(*a, **{"participation": fixed_points.EVERYONE} | k))
    rows = fixed_points.measured(QUADRATICS, betas=(0.05, 0.2), steps=(2, 8), rounds=3, seeds=3)
    assert {row.verdict.outcome for row in select(rows, quantity="exponent in eta K")} == {"holds"}
    ours = [(row.K, row.beta, bool(row.flags), row.verdict.outcome) for row in select(rows, method="CALM")]
    part, outcomes = (False, True), {False: "holds", True: "fails"}
    assert ours == [(k, beta, some, outcomes[some]) for k in (2, 8) for some in part for beta in (0.05, 0.2)]
    assert not any(row.verdict for row in select(rows, quantity="gradient at rest", method=["PAvg", "SCAFFOLD", "FedSVRPG-M"]))

"""The laws of the floors, on floors that were made to follow them or not."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.paper import floor_law
from fedpg.paper.floors import MEMORY, PRINTED, STABLE, Floors

ETAS, BETAS = np.array([0.01, 0.02, 0.04]), (0.1, 0.3, 1.0)
SCALE = np.array([1.0, 3.0, 5.0])


def made(power: float, betas: tuple[float, ...] = BETAS, length: float = 2.0, steps: int = 8) -> Floors:
    """Floors of the form scale (eta K)^length beta^power, for three seeds."""
    etas = ETAS * 8 / steps
    at = (np.array(betas)[:, None, None] ** power) * ((etas * steps) ** length)[:, None] * SCALE
    return Floors(np.array(betas), etas, steps, at, 0.0)


def verdicts(found: dict[str, Floors]) -> dict[str, str]:
    return {row.what.removeprefix("here, "): row.verdict for row in floor_law.law("here", found)}


def test_floors_that_follow_the_law():
    said = verdicts({PRINTED: made(0.0), STABLE: made(2.0), MEMORY: made(2.0, (*BETAS, 0.0))})
    assert said == {
        "PAvg: exponent of the floor in eta K": "holds (law: 2)",
        "FedSVRPG-M: exponent of the floor in beta": "holds (law: 0)",
        "FedSVRPG-M, beta=0.1: floor / PAvg's": "holds (law: 1)",
        "FedSVRPG-S: exponent of the floor in beta": "holds (law: 2)",
        "FedSVRPG-S, beta=0.1: floor / PAvg's": "holds (law: 0.01)",
        "FedSVRPG-S, memory: exponent of the floor in beta": "holds (law: 2)",
        "FedSVRPG-S, memory, beta=0.1: floor / PAvg's": "holds (law: 0.01)",
        "FedSVRPG-S, memory, beta=0: floor / PAvg's": "vanishes",
    }


@pytest.mark.parametrize(("found", "denied"), [
    ({STABLE: made(2.0, length=1.0)}, ["PAvg: exponent of the floor in eta K"]),
    ({STABLE: made(1.0)}, ["FedSVRPG-S: exponent of the floor in beta", "FedSVRPG-S, beta=0.1: floor / PAvg's"]),
    ({STABLE: made(2.0), PRINTED: made(2.0)}, ["FedSVRPG-M: exponent of the floor in beta", "FedSVRPG-M, beta=0.1: floor / PAvg's"]),
])  # fmt: skip
def test_floors_that_do_not(found, denied):
    assert [what for what, verdict in verdicts(found).items() if verdict.startswith("does not hold")] == denied


def test_a_floor_that_does_not_vanish():
    stuck = made(2.0, (*BETAS, 0.0))
    stuck.at[-1] = stuck.at[0]
    assert verdicts({STABLE: made(2.0), MEMORY: stuck})["FedSVRPG-S, memory, beta=0: floor / PAvg's"] == "does not vanish"


def test_what_counts_is_eta_times_k():
    """At the same eta K only (K-1)/K is left of K."""
    few = made(2.0, steps=8)
    many = few._replace(local_steps=32, etas=few.etas / 4, at=few.at * ((31 / 32) / (7 / 8)) ** 2)
    assert floor_law.same_length("here", few, many).verdict == "holds (law: 1.226)"
    assert floor_law.same_length("here", few, many._replace(at=4.0 * few.at)).verdict.startswith("does not hold")


def test_pictures():
    """Two problems: PAvg and both algorithms against eta K, other variants only once, nothing at beta = 0."""
    first = {PRINTED: made(0.0), STABLE: made(2.0), MEMORY: made(2.0, (*BETAS, 0.0))}
    by_length, by_beta = floor_law.pictures({"bowls": first, "doors": first})
    assert {line.label for line in by_length.lines} == {f"{n}, {p}" for n in ("PAvg", PRINTED, STABLE) for p in ("bowls", "doors")}
    assert [line.label for line in by_beta.lines if "memory" in line.label] == ["FedSVRPG-S, memory, bowls"]
    assert all(min(line.x) == 0.1 for line in by_beta.lines)
    line = next(line for line in by_length.lines if line.label == "PAvg, bowls")
    np.testing.assert_allclose(line.x, 8 * ETAS)
    np.testing.assert_allclose(line.y, (8 * ETAS) ** 2 * 15 ** (1 / 3))

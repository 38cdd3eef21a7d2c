"""A server and five agents in their own processes compute what the simulator does, from the same state, after every round."""

from __future__ import annotations

import jax
import pytest

from helpers.real import federation
from helpers.rounds import AGENTS, SERVER, error, part, simulated, watched

COUNT, ROUNDS = 5, 10
# Longer steps lead to policies that rounding can sway.
SMALL = {"agents": COUNT, "rounds": ROUNDS, "local_steps": 3, "batch": 2, "local_lr": 0.001}
# Poles fall after some twenty steps; before that all rewards are alike.
WORLDS = {"random-mdp": {"horizon": 10}, "cartpole": {"horizon": 40, "eval_episodes": 4}}
TOLERANCES = {"float32": 1e-5, "float64": 1e-10}
CASES = [
    ("fedsvrpg-m", "random-mdp", "float32"), ("fedsvrpg-m", "cartpole", "float64"), ("fedhapg-m", "random-mdp", "float64"),
    ("fedhapg-m", "cartpole", "float32"), ("scaffold", "random-mdp", "float64"), ("scaffold", "cartpole", "float32"),
]  # fmt: skip
"""Every algorithm in every environment; test_parity.py has more, in one process."""


@pytest.mark.federation
@pytest.mark.parametrize(("algorithm", "env", "precision"), CASES)
def test_a_real_federation_has_the_simulators_state_after_every_round(tmp_path, algorithm, env, precision):
    double, tolerance = precision == "float64", TOLERANCES[precision]
    with federation(tmp_path, algorithm=algorithm, env=env, **SMALL, **WORLDS[env]) as real:
        real.environment["JAX_ENABLE_X64"] = str(int(double))
        real.serve()
        for agent in range(COUNT):
            real.join(agent)
        found = watched(real)
        rows = real.finish(1.0)
    assert sorted(found) == list(range(ROUNDS + 1))
    assert not [event for event in real.events() if event["agent"] is not None]
    assert [row["round"] for row in rows] == [0, ROUNDS]
    with jax.enable_x64(double):
        expected = simulated(real.config, found)
    for whose in (SERVER, AGENTS):
        known = [round for round in found if part(found[round], whose)]
        errors = [error(part(found[round], whose), part(expected[round], whose)) for round in known]
        steps = [error(part(found[round + 1], whose), part(found[round], whose)) for round in known[:-1]]
        assert max(errors) < tolerance, (whose, errors)
        assert min(steps) > 100 * tolerance, "a round that changes nothing proves nothing"
    assert len(known) >= ROUNDS, "agents remember something after their first round"

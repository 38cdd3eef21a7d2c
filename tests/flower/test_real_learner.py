"""A real federation with the actor-critic: an agent that is killed and comes back costs nothing, and the end is the simulator's."""

from __future__ import annotations

import contextlib

import jax
import pytest

from helpers.real import federation
from helpers.rounds import AGENTS, SERVER, error, kept_by_agents, part, saved, simulated

COUNT, ROUNDS = 3, 8
HOPPER = {"env": "hopper", "algorithm": "calm", "learner": "actor-critic", "agents": COUNT, "rounds": ROUNDS, "local_steps": 2}
HOPPER |= {"batch": 1, "rollout_steps": 32, "horizon": 50, "hidden": (8,), "learner_option": {"epochs": 2, "minibatch": 16, "critic": [8]}}
TOLERANCE = 1e-7
"""Of float64 after all rounds: a step of MuJoCo enlarges a difference."""


@contextlib.contextmanager
def double_precision():
    """For all threads: `jax.enable_x64` holds in its own only, and MuJoCo is called from another."""
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", False)


@pytest.mark.federation
def test_hopper_with_an_agent_that_is_killed_and_restored_ends_where_the_simulator_does(tmp_path):
    with federation(tmp_path, ("--quorum", str(COUNT)), **HOPPER) as real:
        real.environment["JAX_ENABLE_X64"] = "1"
        real.serve()
        for agent in range(COUNT):
            real.join(agent)
        real.wait_until(lambda: real.round() >= 2)
        real.kill("join-1")
        real.wait_until(lambda: not real.is_present(1))
        during = real.round()
        assert during < ROUNDS
        real.join(1)
        real.finish()
        round, found = saved(real)
        found |= kept_by_agents(real, found.pop("agents")[0])
    assert round == ROUNDS
    with double_precision():
        expected = simulated(real.config)
    for whose in (SERVER, AGENTS):

        def of(arrays, whose=whose):  # without the bits of MuJoCo's state, of which a rounding error changes many
            return {name: array for name, array in part(arrays, whose).items() if not name.endswith("lanes.state")}

        assert error(of(found), of(expected[ROUNDS])) < TOLERANCE, whose
        assert error(of(expected[ROUNDS]), of(expected[during])) > 1e4 * TOLERANCE, "rounds that change nothing prove nothing"

"""The simulator: results that depend on nothing but the seed, compiled once, within memory, over all devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from fedpg import memory as chunks
from fedpg.keys import Purpose, agent_key
from fedpg.simulate import Simulator
from helpers.compare import assert_trees_close
from helpers.federations import SMALL, bowl, make


def run(small, name="fedsvrpg-m", rounds=3, **settings):
    engine = Simulator(small.problem, make(name, small.problem), small.agents_of, **settings)
    engine.start()
    engine.advance(0, rounds)
    return engine


def test_keys_do_not_collide_and_do_not_depend_on_how_many_there_are():
    grid = [(seed, round, agent, purpose) for seed in range(3) for round in range(3) for agent in range(3) for purpose in Purpose]
    keys = {tuple(np.asarray(jax.random.key_data(agent_key(0, *place)))) for place in grid}
    assert len(keys) == len(grid)
    assert (jax.random.key_data(agent_key(5, 1, 2, 3)) != jax.random.key_data(agent_key(6, 1, 2, 3))).any()


def test_a_seed_does_not_depend_on_its_neighbours_or_on_chunks():
    small = SMALL["random-mdp"]()
    together = run(small, seeds=5)
    assert together.chunk == 5
    in_chunks = run(small, seeds=5, chunk=2)
    assert in_chunks.chunk == 2
    assert_trees_close(in_chunks.state(), together.state(), rtol=1e-5, atol=1e-6)
    two = jax.tree.map(lambda x: x[:2], together.state())
    assert_trees_close(run(small, seeds=2).state(), two, rtol=1e-5, atol=1e-6)
    assert jax.tree.leaves(in_chunks.evaluate(3))[0].shape[0] == 5


def test_rounds_in_one_call_or_many_are_the_same_and_compile_once():
    small = SMALL["random-mdp"]()
    at_once, apart = run(small, rounds=5, seeds=2), run(small, rounds=2, seeds=2)
    apart.load(apart.state())
    apart.advance(2, 1)
    apart.evaluate(3)
    apart.advance(3, 2)
    assert_trees_close(apart.state(), at_once.state())
    apart.reset_info()
    apart.advance(5, 1)
    assert apart.compilations == {"start": 1, "advance": 1, "evaluate": 1}


def test_seeds_and_roots_differ():
    small = SMALL["random-mdp"]()
    zero, one = (run(small, seeds=2, root=root).state().server.shared.params["logits"] for root in (0, 1))
    assert len({x.tobytes() for x in (*zero, *one)}) == 4


def test_chunks_follow_the_memory_budget(monkeypatch):
    small = SMALL["random-mdp"]()
    whole = Simulator(small.problem, make("pavg", small.problem), small.agents_of, seeds=40)
    monkeypatch.setattr(chunks, "CPU_BUDGET", 10 * chunks.row_bytes(small.problem, whole.agents()))
    cut = Simulator(small.problem, make("pavg", small.problem), small.agents_of, seeds=40)
    assert (whole.chunk, cut.chunk) == (40, 10)


def test_what_was_counted_is_forgotten_on_request_and_nothing_else():
    engine = run(bowl(noise=0.1), seeds=2)
    before = engine.state()
    assert before.info.usage.trajectories.tolist() == [3 + 3 * 3 * 3] * 2  # u_0, then rounds x agents x local steps
    engine.reset_info()
    assert engine.state().info.usage.trajectories.tolist() == [0, 0]
    assert_trees_close(engine.state().server, before.server)


SHARDED = """
import json, jax
jax.config.update("jax_num_cpu_devices", {devices})
import sys; sys.path.insert(0, {tests!r})
from helpers.federations import SMALL, make
from fedpg.simulate import Simulator
small = SMALL["random-mdp"]()
engine = Simulator(small.problem, make("fedsvrpg-m", small.problem), small.agents_of, seeds=3)
engine.start()
engine.advance(0, 3)
print(json.dumps([len(jax.devices()), engine.chunk, engine.state().server.shared.params["logits"].tolist()]))
"""


@pytest.mark.parametrize("devices", [2])
def test_seeds_are_spread_over_devices_without_changing_them(devices):
    """3 seeds on 2 devices: filled up to 4, and the copy is not reported."""
    found = {}
    for count in (1, devices):
        code = SHARDED.format(devices=count, tests=str(Path(__file__).parents[1]))
        output = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | {"XLA_FLAGS": ""}
        )
        found[count] = json.loads(output.stdout)
    assert found[1][:2] == [1, 3]
    assert found[devices][:2] == [2, 4]
    np.testing.assert_allclose(found[1][2], found[devices][2], rtol=1e-5, atol=1e-6)

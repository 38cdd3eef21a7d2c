"""Named arrays and back, and how many numbers travel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import communication as traffic
from fedpg import named_arrays as wire
from fedpg.errors import UserError
from fedpg.simulate import Simulator
from helpers.compare import assert_trees_close
from helpers.federations import SMALL, make


def test_round_trip_of_a_whole_state():
    small = SMALL["cartpole"]()
    engine = Simulator(small.problem, make("fedsvrpg-m", small.problem), small.agents_of, seeds=2)
    engine.start()
    arrays = wire.flatten(engine.state())
    assert "server.shared.params['layers'][0]['matrix']" in arrays
    assert_trees_close(wire.unflatten(engine.template(), arrays), engine.state())


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.pop("x"),
        lambda a: a.update(z=np.zeros(1)),
        lambda a: a.update(x=np.zeros(4, np.float32)),
        lambda a: a.update(x=np.zeros(3, np.float64)),
    ],
    ids=["missing", "extra", "shape", "type"],
)
def test_arrays_that_do_not_fit_are_refused(change):
    tree = {"x": np.zeros(3, np.float32), "y": np.zeros(2, np.float32)}
    arrays = {name.strip("[]'"): leaf for name, leaf in wire.flatten(tree).items()}
    template = {"x": tree["x"], "y": tree["y"]}
    good = {f"['{k}']": v for k, v in arrays.items()}
    assert_trees_close(wire.unflatten(template, good), tree)
    change(arrays)
    with pytest.raises(UserError):
        wire.unflatten(template, {f"['{k}']": v for k, v in arrays.items()})


@pytest.mark.parametrize(
    ("name", "up", "down", "start"),
    [("pavg", 1, 1, 0), ("fedsvrpg-m", 1, 3, 1), ("fedhapg-m", 1, 3, 1), ("heavy-ball", 1, 2, 0), ("local-only", 0, 0, 0)],
)
def test_floats_by_hand(name, up, down, start):
    """In multiples of N d: three agents, 25 parameters. Momentum broadcasts theta, u and, if anchored, theta_prev."""
    small = SMALL["random-mdp"]()
    agents = small.agents_of(jax.random.key(0))
    found = traffic.measure(small.problem, make(name, small.problem), agents)
    unit = 3 * 25
    assert found == (start * unit, (down if start else 0) * unit, up * unit, down * unit, 0, bool(start), 1)
    sent_up, sent_down = found.total(10, np.array([5, 7]))
    assert sent_up.tolist() == [(start + 10 * up) * unit] * 2
    assert sent_down.tolist() == [(10 * down + (down if start else 0)) * unit] * 2


def test_pooled_sends_trajectories():
    small = SMALL["random-mdp"]()
    found = traffic.measure(small.problem, make("pooled", small.problem), small.agents_of(jax.random.key(0)))
    assert found.total(10, np.array([100]))[0].tolist() == [300]  # state, action, reward of every step
    assert jnp.all(found.total(10, np.array([100]))[1] == 0)

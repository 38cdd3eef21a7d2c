"""Pytrees as named arrays, and back."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fedpg import named_arrays
from fedpg.errors import UserError
from fedpg.simulate import simulator
from helpers.compare import assert_trees_close
from helpers.federations import SMALL, make


def test_round_trip_of_a_whole_state():
    small = SMALL["cartpole"]()
    sim = simulator(small.problem, make("fedsvrpg-m", small.problem), small.agents, seeds=2)
    blank = sim.blank(jax.random.key(0))
    rows = jax.tree.map(lambda x: np.random.default_rng(0).normal(size=x.shape).astype(x.dtype), blank.rows)
    arrays = named_arrays.flatten(rows)
    assert "server.shared.params['layers'][0]['matrix']" in arrays
    assert_trees_close(named_arrays.unflatten(blank.rows, arrays), rows)


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
    template = {"x": np.zeros(3, np.float32), "y": np.zeros(2, np.float32)}
    arrays = dict(template)
    change(arrays)
    with pytest.raises(UserError):
        named_arrays.unflatten(template, {f"['{name}']": array for name, array in arrays.items()})

"""A grid of hyper-parameters in one program: every row is the run of that setting and that seed alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from fedpg.rows import all_rows

from fedpg import trees
from fedpg.errors import UserError
from fedpg.simulate import Simulator
from helpers.compare import assert_trees_close
from helpers.federations import SMALL, bowl, make

GRID = {"beta": np.array([0.2, 0.5, 0.2], np.float32), "local_lr": np.array([0.01, 0.01, 0.03], np.float32)}
STEPS = {"local_lr": GRID["local_lr"]}
SEEDS = 3


def finished(engine: Simulator, rounds: int = 3) -> Simulator:
    engine.start()
    engine.advance(0, rounds)
    return engine


def grid_of(small, name="fedsvrpg-m", settings=GRID, **options) -> Simulator:
    options = {"seeds": SEEDS} | options
    return Simulator(small.problem, lambda own: make(name, small.problem, **own), small.agents_of, settings=settings, **options)


def alone(small, p: int, name="fedsvrpg-m", settings=GRID, **options) -> Simulator:
    """The plain run of one setting."""
    own = {key: float(values[p]) for key, values in settings.items()}
    return Simulator(small.problem, make(name, small.problem, **own), small.agents_of, **({"seeds": SEEDS} | options))


def block(tree, p: int):
    """The rows of setting p."""
    return trees.take(tree, slice(p * SEEDS, (p + 1) * SEEDS))


def same_bits(x, y) -> None:
    jax.tree.map(np.testing.assert_array_equal, x, y)


@pytest.mark.parametrize(
    ("federation", "name", "settings"),
    [
        ("bowl", "fedsvrpg-m", GRID),
        pytest.param("random-mdp", "fedsvrpg-m", GRID, marks=pytest.mark.slow),
        ("bowl", "pooled", STEPS),
        ("bowl", "local-only", STEPS),
    ],
)
def test_every_row_is_the_run_of_its_setting_and_seed(federation, name, settings):
    small = SMALL[federation]()
    grid = finished(grid_of(small, name, settings))
    assert (grid.rows, grid.seeds) == (9, SEEDS)
    for p in range(3):
        plain = finished(alone(small, p, name, settings))
        # Up to rounding: a step-size that the compiler knows is multiplied in another order.
        assert_trees_close(block(grid.state(), p), plain.state(), rtol=1e-6, atol=1e-6)
        assert_trees_close(block(grid.evaluate(3), p), plain.evaluate(3), rtol=1e-6, atol=1e-6)
        assert grid.traffic == plain.traffic
    same_bits(grid.agents(), plain.agents())
    same_bits(grid.constants, plain.constants)
    assert grid.compilations == {"start": 1, "advance": 1, "evaluate": 1}


def test_a_setting_does_not_depend_on_the_others():
    """Bit for bit, when as many rows run in one call."""
    small = SMALL["random-mdp"]()
    grid = finished(grid_of(small, chunk=SEEDS))
    assert len({id(agents) for agents in grid._agents}) == 1  # one copy of the agents for all settings
    for p in range(3):
        one = finished(grid_of(small, settings=trees.take(GRID, slice(p, p + 1))))
        same_bits(block(grid.state(), p), one.state())
        same_bits(block(grid.evaluate(3), p), one.evaluate(3))


def test_rows_are_setting_major_and_start_alike():
    rows = all_rows(2, {"lr": np.array([0.1, 0.3]), "pair": np.array([[1, 2], [3, 4]])})
    assert rows.seed.tolist() == [0, 1, 0, 1]
    assert rows.setting["lr"].tolist() == [0.1, 0.1, 0.3, 0.3]
    assert rows.setting["pair"].tolist() == [[1, 2], [1, 2], [3, 4], [3, 4]]
    small = SMALL["bowl"]()
    grid, plain = (finished(engine, rounds=0) for engine in (grid_of(small), alone(small, 0)))
    for p in range(3):
        same_bits(block(grid.state(), p), plain.state())


def test_chunks_loading_and_resetting_change_nothing_and_compile_once():
    """9 rows in 5 calls of 2; the copy in the last is not reported."""
    small = SMALL["random-mdp"]()
    whole, cut = finished(grid_of(small)), finished(grid_of(small, chunk=2), rounds=2)
    assert (whole.chunk, cut.chunk) == (9, 2)
    assert jax.tree.map(np.shape, cut.state()) == jax.tree.map(lambda x: x.shape, cut.template())
    same_bits(cut.agents(), whole.agents())
    cut.load(cut.state())
    cut.advance(2, 1)
    assert_trees_close(cut.state(), whole.state(), rtol=1e-5, atol=1e-6)
    assert_trees_close(cut.evaluate(3), whole.evaluate(3), rtol=1e-5, atol=1e-6)
    cut.reset_info()
    cut.advance(3, 1)
    assert cut.compilations == {"start": 1, "advance": 1, "evaluate": 1}


def test_a_beta_of_one_in_a_grid_is_not_known_to_be_one():
    """NumPy's float64 is a Python float: the warm-up must be counted as it is run, whatever the first setting."""
    grid = grid_of(bowl(), settings={"beta": np.array([1.0, 0.5])})
    assert grid.traffic == alone(bowl(), 0, settings={"beta": [0.5]}).traffic


@pytest.mark.parametrize("settings", [{}, {"beta": 0.5}, {"beta": np.zeros(0)}, {"beta": np.ones(2), "local_lr": np.ones(3)}])
def test_settings_without_one_leading_axis_are_refused(settings):
    with pytest.raises(UserError, match="one leading axis"):
        grid_of(bowl(), settings=settings)


SHARDED = """
import json, jax
jax.config.update("jax_num_cpu_devices", 2)
import sys; sys.path.insert(0, {tests!r})
from engines.test_settings import SMALL, finished, grid_of
grid = finished(grid_of(SMALL["bowl"]()))
grid.evaluate(3)
print(json.dumps([grid.chunk, grid.compilations, grid.state().server.shared.params.tolist()]))
"""


def test_rows_are_spread_over_devices_without_changing_them():
    """9 rows on 2 devices: filled up to 10."""
    code = SHARDED.format(tests=str(Path(__file__).parents[1]))
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | {"XLA_FLAGS": ""})
    chunk, compilations, params = json.loads(output.stdout)
    assert chunk == 10
    assert set(compilations.values()) == {1}
    one = finished(grid_of(SMALL["bowl"]()))
    np.testing.assert_allclose(params, one.state().server.shared.params, rtol=1e-5, atol=1e-6)

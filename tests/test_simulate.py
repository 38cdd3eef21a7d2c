"""The simulator: pure functions of a state, results that depend on nothing but the seed and compiled once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import memory, trees
from fedpg.envs.base import Federation
from fedpg.errors import UserError
from fedpg.keys import Purpose, agent_key
from fedpg.quadratic import bowls
from fedpg.simulate import Simulator, State, all_rows, simulator
from helpers.compare import assert_trees_close
from helpers.federations import SMALL, Small, bowl, make

GRID = {"beta": np.array([0.2, 0.5, 0.2], np.float32), "local_lr": np.array([0.01, 0.01, 0.03], np.float32)}
SEEDS = 3
KEY = jax.random.key(0)


def simulate(small: Small, name: str = "fedsvrpg-m", settings: dict | None = None, **options) -> Simulator:
    algorithm = (lambda own: make(name, small.problem, **own)) if settings else make(name, small.problem)
    return simulator(small.problem, algorithm, small.agents, settings=settings, **options)


def after(sim: Simulator, rounds: int = 3, key: jax.Array = KEY) -> State:
    return sim.run(sim.init(key), rounds)[0]


def same_bits(x, y) -> None:
    jax.tree.map(np.testing.assert_array_equal, x, y)


def block(tree, p: int):
    """The rows of setting p."""
    return trees.take(tree, slice(p * SEEDS, (p + 1) * SEEDS))


def test_keys_do_not_collide_and_do_not_depend_on_how_many_there_are():
    grid = [(seed, round, agent, purpose) for seed in range(3) for round in range(3) for agent in range(3) for purpose in Purpose]
    keys = {tuple(np.asarray(jax.random.key_data(agent_key(KEY, *place)))) for place in grid}
    assert len(keys) == len(grid)
    one, other = (jax.random.key_data(agent_key(jax.random.key(root), 1, 2, 3)) for root in (5, 6))
    assert (one != other).any()


def test_the_same_state_gives_the_same_result_and_going_on_gives_new_numbers():
    """There is no round number to pass, and so no way to replay random numbers by accident."""
    sim = simulate(bowl(noise=1.0), "pavg")
    start = sim.init(KEY)
    first, info = sim.run(start, 2)
    again, same = sim.run(start, 2)
    same_bits((first.rows, info), (again.rows, same))
    assert (int(start.round), int(first.round)) == (0, 2)
    second, _ = sim.run(first, 2)
    moved = [np.asarray(b.rows.server.shared.params - a.rows.server.shared.params) for a, b in ((start, first), (first, second))]
    assert np.abs(moved[0] - moved[1]).min() > 1e-3
    whole, _ = sim.run(start, 4)
    same_bits(whole.rows.server, second.rows.server)


def test_rounds_cannot_go_back_and_bad_arguments_are_refused():
    small = bowl()
    sim = simulate(small, "pavg")
    with pytest.raises(UserError, match="rounds must be 0 or more"):
        sim.run(sim.init(KEY), -1)
    with pytest.raises(UserError, match="seeds must be at least 1"):
        simulate(small, "pavg", seeds=0)
    with pytest.raises(UserError, match="give an Algorithm"):
        simulator(small.problem, lambda own: make("pavg", small.problem), small.agents)
    assert sim.blank(KEY).rows.failed.tolist() == [-1]


def test_other_agents_use_the_same_programs():
    sim, other = simulate(SMALL["bowl"](), seeds=2), SMALL["bowl"]()
    count = jax.tree.leaves(sim.init(KEY).agents)[0].shape[1]
    other = other._replace(agents=bowls(jax.random.key(7), count, 0.9))
    before = after(sim)
    found = after(sim.on(other.agents))
    same_bits(found.rows, after(simulate(other, seeds=2)).rows)
    assert sim.programs.compilations["run"] == 1
    assert np.abs(np.asarray(found.rows.server.shared.params - before.rows.server.shared.params)).max() > 1e-3


def test_one_call_or_many_and_compiled_once():
    sim = simulate(SMALL["bowl"](), seeds=2)
    state = sim.init(KEY)
    whole, _ = sim.run(state, 5)
    apart, _ = sim.run(state, 2)
    apart, _ = sim.run(apart._replace(rows=jax.tree.map(np.asarray, apart.rows)), 1, accumulate=True)  # as a checkpoint has it
    sim.evaluate(apart)
    apart, _ = sim.run(apart, 2, accumulate=True)
    same_bits(apart.rows, whole.rows)
    assert sim.programs.compilations == {"blank": 0, "start": 1, "run": 1, "evaluate": 1, "params": 0}
    blank = sim.blank(KEY)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), blank.rows) == jax.tree.map(lambda x: (x.shape, x.dtype), whole.rows)
    same_bits(blank.agents, whole.agents)


def test_counters_start_at_zero_in_every_call_unless_asked_not_to():
    sim = simulate(bowl(noise=0.1), seeds=2)
    state = sim.init(KEY)
    assert state.rows.info.usage.trajectories.tolist() == [3, 3]  # u_0: one batch of three agents
    state, info = sim.run(state, 3, accumulate=True)
    assert info.local.usage.trajectories.tolist() == [3 + 3 * 3 * 3] * 2  # rounds x agents x local steps
    state, info = sim.run(state, 1)
    assert info.local.usage.trajectories.tolist() == [9, 9]
    assert info.refused.tolist() == [[0, 0, 0]] * 2


def test_agents_may_be_arrays_a_function_of_key_and_seed_or_a_federation():
    problem = bowl().problem
    fixed = bowls(KEY, 3, 0.5)
    algorithm = make("pavg", problem)
    arrays = simulator(problem, algorithm, fixed, seeds=2)
    federation = simulator(problem, algorithm, Federation(None, fixed), seeds=2)
    same_bits(after(arrays).rows, after(federation).rows)
    assert jax.tree.leaves(after(arrays).agents)[0].shape[:2] == (2, 3)

    def by_seed(key, seed):
        return fixed._replace(centre=jnp.full((3, 4), seed, float))

    sim = simulator(problem, algorithm, by_seed, seeds=3)
    assert sim.init(KEY).agents.centre[:, 0, 0].tolist() == [0.0, 1.0, 2.0]
    prepared = Federation(None, by_seed, lambda drawn: drawn._replace(centre=drawn.centre + 10.0))
    state = simulator(problem, algorithm, prepared, seeds=2).init(KEY)
    assert state.agents.centre[:, 0, 0].tolist() == [10.0, 11.0]


def test_changed_agents_are_used_even_if_most_of_them_is_the_same():
    sim = simulate(bowl(), "pavg")
    state = after(sim)
    moved = state._replace(agents=state.agents._replace(centre=np.asarray(state.agents.centre) + 1.0))
    assert np.abs(sim.evaluate(moved).objective - sim.evaluate(state).objective).min() > 1e-3


def test_params_are_what_agents_deploy():
    small = bowl()
    common = simulate(small, "pavg", seeds=2)
    state = after(common)
    same_bits(common.params(state), state.rows.server.shared.params)
    personal = simulate(small, "local-only", seeds=2)
    assert personal.params(after(personal)).shape == (2, 3, 4)


def test_a_seed_does_not_depend_on_its_neighbours_or_on_chunks():
    small = SMALL["bowl"]()
    whole, cut, fewer = simulate(small, seeds=5), simulate(small, seeds=5, chunk=2), simulate(small, seeds=2)
    together = after(whole)
    apart = after(cut)
    assert (whole.programs.chunk, cut.programs.chunk) == (5, 2)
    assert_trees_close(apart.rows, together.rows, rtol=1e-5, atol=1e-6)
    assert_trees_close(after(fewer).rows, trees.take(together.rows, slice(2)), rtol=1e-5, atol=1e-6)
    assert_trees_close(cut.evaluate(apart), whole.evaluate(together), rtol=1e-5, atol=1e-6)
    params = [after(whole, key=jax.random.key(root)).rows.server.shared.params for root in (0, 1)]
    assert len({np.asarray(x).tobytes() for pair in params for x in pair}) == 10


def test_chunks_follow_the_memory_budget(monkeypatch):
    small = SMALL["bowl"]()
    whole = simulate(small, "pavg", seeds=40)
    state = whole.init(KEY)
    monkeypatch.setattr(memory, "CPU_BUDGET", 10 * memory.row_bytes(small.problem, state.agents))
    cut = simulate(small, "pavg", seeds=40)
    cut.blank(KEY)
    assert (whole.programs.chunk, cut.programs.chunk) == (40, 10)


@pytest.mark.parametrize(
    ("name", "settings"), [("fedsvrpg-m", GRID), ("pooled", {"local_lr": GRID["local_lr"]}), ("local-only", {"local_lr": GRID["local_lr"]})]
)
def test_every_row_of_a_grid_is_the_run_of_its_setting_and_seed(name, settings):
    small = SMALL["bowl"]()
    grid = simulate(small, name, settings, seeds=SEEDS)
    assert (grid.rows, grid.seeds) == (9, SEEDS)
    found = after(grid)
    for p in range(3):
        own = {key: float(values[p]) for key, values in settings.items()}
        plain = simulator(small.problem, make(name, small.problem, **own), small.agents, seeds=SEEDS)
        alone = after(plain)
        # Up to rounding: a step-size that the compiler knows is multiplied in another order.
        assert_trees_close(block(found.rows, p), alone.rows, rtol=1e-6, atol=1e-6)
        assert_trees_close(block(grid.evaluate(found), p), plain.evaluate(alone), rtol=1e-6, atol=1e-6)
        assert grid.communication(found) == plain.communication(alone)
    same_bits(found.agents, alone.agents)
    assert grid.programs.compilations == {"blank": 0, "start": 1, "run": 1, "evaluate": 1, "params": 0}


def test_a_setting_does_not_depend_on_the_others():
    """Bit for bit, when as many rows run in one call."""
    small = SMALL["bowl"]()
    grid = simulate(small, settings=GRID, seeds=SEEDS, chunk=SEEDS)
    found = after(grid)
    one = simulate(small, settings=trees.take(GRID, slice(1, 2)), seeds=SEEDS)
    alone = after(one)
    same_bits(block(found.rows, 1), alone.rows)
    same_bits(block(grid.evaluate(found), 1), one.evaluate(alone))


def test_rows_are_setting_major():
    rows = all_rows(2, {"lr": np.array([0.1, 0.3]), "pair": np.array([[1, 2], [3, 4]])})
    assert rows.seed.tolist() == [0, 1, 0, 1]
    assert rows.setting["lr"].tolist() == [0.1, 0.1, 0.3, 0.3]
    assert rows.setting["pair"].tolist() == [[1, 2], [1, 2], [3, 4], [3, 4]]


def test_a_beta_of_one_in_a_grid_is_not_known_to_be_one():
    """NumPy's float64 is a Python float: the warm-up must be counted as it is run, whatever the first setting."""
    grid = simulate(bowl(), settings={"beta": np.array([1.0, 0.5], np.float32)})
    state = grid.init(KEY)
    assert grid.communication(state).start_messages == 1


@pytest.mark.parametrize("settings", [{}, {"beta": 0.5}, {"beta": np.zeros(0)}, {"beta": np.ones(2), "local_lr": np.ones(3)}])
def test_settings_without_one_leading_axis_are_refused(settings):
    with pytest.raises(UserError, match="one leading axis"):
        all_rows(2, settings)


def test_matrix_products_are_lowered_at_the_highest_precision():
    """The simulator of the README sees to it itself: on a GPU they would otherwise be rounded to TF32."""
    small = SMALL["cartpole"]()
    sim = simulate(small)
    text = sim.programs.lower(sim.blank(KEY)).as_text()
    products = text.count("stablehlo.dot_general")
    assert products >= 10
    assert text.count("precision = [HIGHEST, HIGHEST]") == products
    assert jax.config.jax_default_matmul_precision is None

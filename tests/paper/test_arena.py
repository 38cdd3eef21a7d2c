"""Arena: scores and choices on made-up returns, budgets, and one small real run."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fedpg import simulate as simulator
from fedpg.algorithms import ALGORITHMS
from fedpg.keys import Purpose, agent_key
from fedpg.paper import arena
from fedpg.paper.arena_entries import AGENTS, BY_NAME, GROUNDS, ROOT, finite_agents, finite_problem, make
from fedpg.paper.arena_scores import Played, Scored, better, improvement, iqm, pictures, rows, score
from fedpg.paper.kept import keeping
from fedpg.report.stats import Estimate


@pytest.fixture(autouse=True)
def compile_quickly(monkeypatch):
    """These programs run once."""
    monkeypatch.setattr(simulator, "COMPILER_OPTIONS", {"cpu": {"xla_backend_optimization_level": 0}})


def played(final: list[list[float]], start: float = 0.0) -> Played:
    values = np.array(final)
    return Played(np.full(values.shape[1], start), values, 100.0, 10)


def test_step_sizes_are_chosen_on_other_seeds_than_those_reported():
    """The second step-size is better on the two seeds for choosing, the first on the reported ones, which must not matter."""
    found = score({"pavg": played([[1.0, 1.0, 9.0, 9.0], [2.0, 2.0, 4.0, 5.0], [0.0, 0.0, 0.0, 0.0]])}, (0.1, 0.2, 0.3), 2, 10.0, ())
    assert found["pavg"].local_lr == 0.2
    assert found["pavg"].scores.tolist() == [0.4, 0.5]
    assert not found["pavg"].edge


def test_scores_reach_from_the_first_policy_to_the_best_common_one():
    both = {"pavg": played([[3.0, 3.0]], start=1.0), "x": played([[5.0, np.nan]], start=1.0), "local-only": played([[9.0, 9.0]], start=1.0)}
    found = score(both, (0.1,), 1, None, ("local-only",))
    # on the reported seed x failed, so that the best common one is pavg's 3
    assert {name: each.scores.tolist() for name, each in found.items()} == {"pavg": [1.0], "x": [0.0], "local-only": [4.0]}
    assert found["pavg"].edge


def test_where_everybody_failed_all_scores_are_zero():
    assert score({"pavg": played([[np.nan, np.nan]])}, (0.1,), 1, None, ())["pavg"].scores.tolist() == [0.0]


def test_chance_to_be_better():
    better_one, worse_one = np.linspace(0.5, 1.0, 12), np.linspace(0.0, 0.4, 12)
    sure = improvement([better_one, better_one], [worse_one, worse_one])
    assert (float(sure.mean), float(sure.low), better(sure)) == (1.0, 1.0, "better")
    assert better(improvement([worse_one], [better_one])) == "worse"
    half = improvement([better_one, worse_one], [worse_one, better_one])
    assert (float(half.mean), better(half)) == (0.5, "not resolved")
    assert better(Estimate(0.6, 0.5, 0.7, 3)) == "not resolved"


def test_rows_and_pictures_of_a_made_up_board():
    level = {"pavg": 0.5, "x": 0.8, "fednpg": 0.9}
    board = {
        task: {name: Scored(np.full(8, value), 0.1, name == "x") for name, value in level.items() if task == "a" or name != "fednpg"}
        for task in ("a", "b")
    }
    table = rows(board, ("fednpg",))
    found = {row.what: row for row in table}
    assert table[0].what == "fednpg (no trajectories): IQM, a"
    assert found["x: IQM, all tasks"].ours == 0.8
    assert (found["x: IQM, all tasks"].n, found["x: IQM, b"].n) == (16, 8)
    assert found["x: IQM, b"].verdict == "local-lr 0.1, at the edge of the grid"
    assert found["x: chance to be better than pavg, all tasks"].ours == 1.0
    assert "pavg: chance to be better than pavg, a" not in found
    drawn = pictures(table, ("a", "b"))
    assert [panel.places for panel in drawn] == [["x", "pavg"], ["fednpg*", "x", "pavg"], ["x", "pavg"]]
    assert drawn[0].lines[0].y == [0.8, 0.5]
    assert float(iqm([np.arange(8.0)]).mean) == 3.5


def test_every_algorithm_is_entered():
    assert set(BY_NAME) == set(ALGORITHMS)
    problem, direct = (finite_problem(BY_NAME[name]) for name in ("authors-svrpg", "pavg-projected"))
    assert make(BY_NAME["authors-svrpg"], problem, 0.1, 2, 1).name == "authors-svrpg"
    assert make(BY_NAME["pavg-projected"], direct, 0.1, 2, 1).name == "pavg-projected"


def test_later_seeds_conflict():
    """Random MDPs share rewards; agents that conflict share the kernel."""
    agents_of = jax.jit(finite_agents(2))
    first, last = (agents_of(agent_key(ROOT, seed, 0, 0, Purpose.AGENTS)) for seed in (1, 2))
    assert np.ptp(first.reward, axis=0).max() == 0 < np.ptp(first.transition, axis=0).max()
    assert np.ptp(last.transition, axis=0).max() == 0 < np.ptp(last.reward, axis=0).max()


@pytest.mark.slow  # `reproduce NAME --scale smoke` runs in CI
def test_a_small_run_pays_for_everything_from_the_same_budget(monkeypatch, tmp_path):
    """FedPG-BR's server draws 15 of 95 trajectories a round: 2 rounds of 5 agents with 40 each; PAvg's 80 a round leave 2 as well."""
    monkeypatch.setitem(arena.SCALES, "smoke", arena.Scale(("pavg", "fedpg-br", "fednpg"), {"finite": 40}, 1, 2, 1))
    with keeping(tmp_path / "parts"):
        found = arena.run("smoke", lambda what, share: None)
        kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").iterdir()}
        again = arena.run("smoke", lambda what, share: None)
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").iterdir()} == kept
    assert (len(kept), again.rows) == (3, found.rows)
    steps = GROUNDS["finite"].local_steps
    assert found.settings["trajectories and rounds"] == {
        "pavg, finite": [2.0 * AGENTS * steps, 2], "fedpg-br, finite": [2.0 * (AGENTS * steps + steps - 1), 2], "fednpg, finite": [0.0, 2],
    }  # fmt: skip
    assert all(np.isfinite(row.ours) and row.low <= row.high for row in found.rows)
    assert max(row.ours for row in found.rows if "pavg: IQM" in row.what) <= 1.0

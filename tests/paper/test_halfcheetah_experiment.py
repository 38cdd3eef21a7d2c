"""HalfCheetah: what is run, and what is said of curves whose order is known."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.paper import halfcheetah
from fedpg.paper.halfcheetah import FIRST, HESSIAN, SCALES, THEIRS
from helpers.curves import made_up

FULL = SCALES["full"]


def said(rows) -> dict[str, tuple[float, str]]:
    return {row.what: (row.ours, row.verdict) for row in rows}


@pytest.mark.parametrize(
    ("ours", "verdict"), [(60.0, "holds: ahead"), (50.0, "holds within its interval"), (40.0, "does not hold: behind")]
)
def test_ours_is_judged_beside_pavg(ours, verdict):
    runs = {FIRST: made_up(50.0), HESSIAN: made_up(ours), THEIRS: made_up(50.0)}
    found = said(halfcheetah.judge(0.001, runs, True))
    over, end = (f"local-lr 0.001, {what}: {HESSIAN} - {THEIRS}" for what in ("over the run", "at the end"))
    # a line from 10 to x: its mean is (10 + x) / 2, and its last three evaluations of six are at 60, 80 and 100 % of the way
    assert found[over] == (pytest.approx((ours - 50.0) / 2), verdict)
    assert found[end] == (pytest.approx(0.8 * (ours - 50.0)), verdict)
    assert found[f"local-lr 0.001, at the end: {FIRST} - {THEIRS}"] == (pytest.approx(0.0), "holds within its interval")
    assert found[f"local-lr 0.001, {THEIRS}: return over the run"][0] == pytest.approx(30.0)


def test_each_is_taken_at_its_own_best_step_size():
    found = {
        0.001: {FIRST: made_up(30.0), THEIRS: made_up(50.0)},
        0.005: {FIRST: made_up(90.0, seeds=6), THEIRS: made_up(40.0, seeds=6)},
    }
    row = halfcheetah.best(found, FIRST, True)
    assert row.what.startswith("best local-lr of each (0.005, 0.001)")
    assert row.n == 4  # the seeds that both step-sizes have
    assert row.verdict == "holds: ahead"


def test_all_have_the_same_seeds_and_steps_and_every_root_is_run():
    todo = halfcheetah.jobs(FULL)
    assert len(todo) == 24
    assert all(job.config.local_lr == job.step for job in todo)
    by_name = {name: [(job.step, job.config) for job in todo if job.names == (name,)] for name in (FIRST, HESSIAN, THEIRS)}
    assert by_name[FIRST] == by_name[THEIRS]
    assert {config.algorithm for _, config in by_name[FIRST]} == {"fedsvrpg-s"}
    assert {config.algorithm for _, config in by_name[HESSIAN]} == {"fedhapg-s"}
    same = ("seed", "seeds", "rounds", "batch", "local_steps", "horizon", "normalise_advantages", "normalise_observations", "baseline")
    for (step, config), (other_step, other) in zip(by_name[HESSIAN], by_name[THEIRS], strict=True):
        assert (step, *(getattr(config, name) for name in same)) == (other_step, *(getattr(other, name) for name in same))
    assert [job.names for job in halfcheetah.jobs(SCALES["smoke"])] == [(FIRST, THEIRS)]


def test_roots_are_joined_in_order(monkeypatch):
    def fake(function, jobs, processes, tell):
        assert processes == 16
        return [[made_up(100.0 * job.step + job.config.seed, seeds=job.config.seeds)] for (job,) in jobs]

    monkeypatch.setattr(halfcheetah, "side_by_side", fake)
    found = halfcheetah.run("full", lambda what, share: None)
    assert [len(panel.lines) for panel in found.panels] == [3, 3, 3]
    assert {row.n for row in found.rows if row.what.startswith("local-lr 0.001")} == {8}
    assert {row.n for row in found.rows if row.what.startswith("local-lr 0.005")} == {12}
    joined = halfcheetah.together([made_up(10.0, seeds=2), made_up(20.0, seeds=3, failed=1)])
    np.testing.assert_allclose(joined.total_return[:, -1], [9.9, 10.1, 19.9, 20.0, 20.1])
    assert joined.failed.tolist() == [False, False, True, False, False]


def test_without_mujoco_it_says_so(monkeypatch):
    monkeypatch.setattr(halfcheetah, "missing", lambda env: "halfcheetah needs MuJoCo")
    found = halfcheetah.run("smoke", lambda what, share: None)
    assert (found.rows, found.panels, found.notes) == ([], [], ["left out: halfcheetah needs MuJoCo"])

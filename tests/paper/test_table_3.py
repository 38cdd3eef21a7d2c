"""Table 3: the published numbers, and what is said of ours beside them."""

from __future__ import annotations

import math

import pytest

from fedpg.paper import table_3
from fedpg.paper.table_3 import PUBLISHED, SCALES, Scale
from helpers.curves import made_up


def rows_of(env: str, ends: dict[float, float], **more) -> dict[str, tuple]:
    runs = {beta: made_up(end, start=end, **more) for beta, end in ends.items()}
    return {row.what: row for row in table_3.judge(env, runs, True)}


def test_numbers_are_judged_by_the_printed_error():
    rows = rows_of("walker2d", {0.2: 130.0, 0.5: 287.0, 0.8: 301.0, 1.0: 320.0})
    assert rows["Walker, beta 0.2"].verdict == "agrees (0.1 se)"
    assert rows["Walker, baseline (beta 1)"].verdict == "differs (6.7 se)"
    assert (rows["Walker, beta 0.5"].published, rows["Walker, beta 0.5"].published_error) == (287.14, 72.26)


def test_our_own_error_counts_too():
    exact = rows_of("walker2d", {0.8: 301.0, 1.0: 320.0})["Walker, baseline (beta 1)"]
    noisy = rows_of("walker2d", {0.8: 301.0, 1.0: 320.0}, scatter=40.0)["Walker, baseline (beta 1)"]
    assert (exact.verdict[:7], noisy.verdict[:6]) == ("differs", "agrees")


def test_the_order_of_the_betas_is_judged():
    rows = rows_of("cartpole", {0.2: 83.0, 0.5: 86.0, 0.8: 90.0, 1.0: 85.0})
    assert rows["CartPole: beta 0.8 above the baseline"].verdict == "holds"
    assert rows["CartPole: beta 0.8 above the baseline"].published == 0.66
    assert rows["CartPole: lead of beta 0.8 on the best other"].verdict == "holds"
    rows = rows_of("cartpole", {0.2: 99.0, 0.8: 90.0, 1.0: 85.0})
    assert rows["CartPole: lead of beta 0.8 on the best other"].verdict == "does not hold: beta 0.2 is better"


def test_published_means_make_beta_08_the_best():
    for column in PUBLISHED.values():
        assert max(column, key=lambda beta: column[beta][0]) == table_3.BEST


@pytest.mark.parametrize(("env", "processes", "count"), [("cartpole", 4, 1), ("walker2d", 4, 4), ("walker2d", 1, 1)])
def test_runs_are_shared_out(env, processes, count, monkeypatch):
    asked = []

    def fake(function, jobs, processes, tell):
        asked.append((jobs, processes))
        return [[made_up(beta) for beta in settings["beta"]] for _, settings, _ in jobs]

    monkeypatch.setattr(table_3, "side_by_side", fake)
    runs, shown = table_3.measure(env, SCALES["full"]._replace(processes=processes), lambda what, share: None)
    ((jobs, used),) = asked
    assert len(jobs) == count
    assert used == (1 if env == "cartpole" else processes)
    assert [beta for _, settings, _ in jobs for beta in settings["beta"]] == [0.2, 0.5, 0.8, 1.0]
    assert {steps for *_, steps in jobs} == {math.inf if env == "cartpole" else 400_000}
    assert {beta: run.total_return[:, -1].mean() for beta, run in runs.items()} == pytest.approx({b: b for b in PUBLISHED[env]})
    assert shown["local_lr"] == (0.0003 if env == "cartpole" else 0.001)


def test_a_tiny_run_without_mujoco(monkeypatch):
    tiny = {"rounds": 2, "eval_every": 1, "seeds": 2, "batch": 1, "horizon": 5, "local_steps": 1, "u0": "0", "eval_episodes": 1}
    monkeypatch.setitem(SCALES, "smoke", Scale((0.2, 1.0), tiny, tiny, math.inf, 1))
    monkeypatch.setattr(table_3, "missing", lambda env: "walker2d needs MuJoCo" if env == "walker2d" else None)
    found = table_3.run("smoke", lambda what, share: None)
    assert [row.what for row in found.rows] == ["CartPole, beta 0.2", "CartPole, baseline (beta 1)"]
    assert {row.verdict for row in found.rows} == {"smoke: too short to judge"}
    assert all(1.0 <= row.ours <= 5.0 for row in found.rows)
    assert "left out: walker2d needs MuJoCo" in found.notes
    assert len(found.panels) == 1

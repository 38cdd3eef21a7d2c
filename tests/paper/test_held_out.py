"""`held-out`: verdicts on made-up J, step-sizes that follow the largest reward, and tasks that were not tuned on."""

import dataclasses

import numpy as np
import pytest

from fedpg.paper import drift, held_out
from fedpg.paper.method import CALM, HEAVY_BALL
from fedpg.paper.results import select
from fedpg.paper.task import Task

ETAS, NOISE, START = np.array([0.01, 0.1, 1.0]), np.array([-0.01, 0.0, 0.01]), 5.0


def made(ours, theirs, blur=0.0):
    """The given means; `blur` is noise of the variant alone at the largest step-size."""
    spread = np.outer([0.0, 0.0, blur], NOISE)
    return np.array(ours)[:, None] + NOISE + spread, np.array(theirs)[:, None] + NOISE


@pytest.mark.parametrize(("ours", "theirs", "verdict", "rows"), [
    (*made([11.0, 15.2, 15.1], [11.0, 15.0, 14.0]), "won", 4),  # PAvg loses a tenth of the 10 it learned
    (*made([11.0, 15.2, 15.1], [11.0, 15.0, 14.6]), "won", 3),  # less than a twentieth: nothing to look at
    (*made([11.0, 14.9, 14.9], [11.0, 14.9, 14.0]), "not worse", 4),  # no better at its best
    (*made([11.0, 16.0, 14.5], [11.0, 15.0, 14.0]), "not worse", 4),  # loses more than PAvg does
    (*made([11.0, 15.2, 14.0], [11.0, 15.0, 14.6], blur=100.0), "not worse", 3),  # worse on average, within a wide interval
    (*made([10.9, 15.2, 15.1], [11.0, 15.0, 14.0]), "lost", 4),
])  # fmt: skip
def test_verdicts(ours, theirs, verdict, rows):
    at = drift.first_loss(theirs, held_out.SHARE * (drift.means(theirs).max() - START))
    table, found = held_out.judge(ETAS, ours, theirs, at, task="here", method="x")
    assert (found, len(table)) == (verdict, rows)


def test_the_loss_is_judged_against_pavgs_on_the_same_seeds():
    ours, theirs = made([11.0, 15.2, 15.1], [11.0, 15.0, 14.0])
    table, _ = held_out.judge(ETAS, ours, theirs, 2)
    (loss,) = select(table, quantity="loss")
    assert (loss.mean, loss.verdict.bound, loss.verdict.outcome) == (pytest.approx(0.1), pytest.approx(1.0), "holds")


def test_nothing_held_out_was_tuned_on():
    """Other seeds than those looked at, and every task but the first differs in more than seeds."""
    assert {sizes["root"] for sizes in held_out.SCALES.values()}.isdisjoint({0, 3, 7, 77003})
    plain = [task.name for task in held_out.TASKS if dataclasses.replace(task, name="") == Task("")]
    assert plain == ["conflict, new seeds only"]
    assert {task.agents for task in held_out.TASKS} == {5, 6, 8, 12, 16}
    assert {task.local_steps for task in held_out.TASKS} == {6, 12, 16, 24, 32, 96}


def test_a_run_scales_step_sizes_and_names_every_verdict(monkeypatch):
    asked = []

    def objectives(task, method, etas, seeds, root, rounds):
        asked.append((task.name, tuple(np.round(etas, 6)), root, rounds))
        behind = 1.0 if (task.name, method.name) == ("b", "heavy ball") else 0.0
        final = np.array([[11.2], [15.2 - behind]]) if method.name != "PAvg" else np.array([[11.0], [15.0]])
        final = final + np.zeros(seeds)
        return {(method.name, 1.0 if method.name == "PAvg" else 0.2): np.stack([np.full_like(final, 5.0), final])}

    monkeypatch.setattr(drift, "objectives", objectives)
    tasks = (Task("a", heterogeneity=0.0), Task("b"))
    result = held_out.run(lambda what, share: None, root=99, seeds=3, etas=(0.001, 0.01), tasks=tasks, methods=(CALM, HEAVY_BALL))
    assert set(asked) == {("a", (0.01, 0.1), 99, (0, 100)), ("b", (0.001, 0.01), 99, (0, 100))}
    assert result.notes == ["CALM: won: a, b; not worse: none; lost: none.", "heavy ball: won: a; not worse: none; lost: b."]
    assert [plot.title for plot in result.plots] == ["a: won", "b: won / lost"]
    assert len(result.rows) == 2 * (1 + 2 * 3)

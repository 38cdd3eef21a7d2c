"""`held-out`: its verdicts on made-up J, and one small run."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.paper import held_out
from fedpg.paper.conflict import Task
from fedpg.paper.contest import Contest

ETAS = np.array([0.01, 0.1, 1.0])
NOISE = np.array([-0.01, 0.0, 0.01])
START = np.full(3, 5.0)


def made(ours: list[float], theirs: list[float], blur: float = 0.0) -> Contest:
    """The given means; `blur` is noise of the variant alone at the largest step-size."""
    spread = np.outer([0.0, 0.0, blur], NOISE)
    return Contest(ETAS, np.array(ours)[:, None] + NOISE + spread, np.array(theirs)[:, None] + NOISE)


@pytest.mark.parametrize(("one", "verdict", "rows"), [
    (made([11.0, 15.2, 15.1], [11.0, 15.0, 14.0]), "won", 6),  # PAvg loses a tenth of the 10 it learned
    (made([11.0, 15.2, 15.1], [11.0, 15.0, 14.6]), "won", 4),  # less than a twentieth: nothing to look at
    (made([11.0, 14.9, 14.9], [11.0, 14.9, 14.0]), "not worse", 6),  # no better at its best
    (made([11.0, 16.0, 14.5], [11.0, 15.0, 14.0]), "not worse", 6),  # loses more than PAvg does
    (made([11.0, 15.2, 14.0], [11.0, 15.0, 14.6], blur=100.0), "not worse", 4),  # worse on average, within a wide interval
    (made([10.9, 15.2, 15.1], [11.0, 15.0, 14.0]), "lost", 6),
])  # fmt: skip
def test_verdicts(one, verdict, rows):
    at = held_out.lost_at(one, START)
    table, found = held_out.judge("here", "ours", one, at)
    assert (found, len(table) + len(held_out.plain("here", one, at))) == (verdict, rows)


def test_rows_say_what_was_measured():
    one = made([11.0, 15.2, 15.1], [11.0, 15.0, 14.0])
    at = held_out.lost_at(one, START)
    table = held_out.plain("here", one, at) + held_out.judge("here", "FedSVRPG-S", one, at)[0]
    assert {row.what: (round(row.ours, 6), row.verdict) for row in table} == {
        "here: FedSVRPG-S - PAvg, worst eta (0.01)": (0.0, "holds"),
        "here: best J, PAvg": (15.0, ""),
        "here: best J, FedSVRPG-S": (15.2, ""),
        "here: best J, FedSVRPG-S - PAvg": (0.2, "holds"),
        "here, eta=1: J lost by PAvg": (1.0, ""),
        "here, eta=1: J lost by FedSVRPG-S, less": (0.1, "holds"),
    }


def test_nothing_held_out_was_tuned_on():
    """Other seeds than those looked at, and every task but the first differs in more than seeds."""
    assert len({size.root for size in held_out.SIZES.values()} - {0, 3, 7, 77003}) == 2
    plain = [task for task in held_out.TASKS if str(task).split("env=")[1] == str(Task()).split("env=")[1]]
    assert [task.label for task in plain] == ["conflict, new seeds only"]
    assert {task.agents for task in held_out.TASKS} == {5, 6, 8, 12, 16}
    assert {task.local_steps for task in held_out.TASKS} == {6, 12, 16, 24, 32, 96}


def test_a_small_run(monkeypatch):
    """Two tasks whose largest rewards differ: their step-sizes do, inversely; every variant's summary names each task once."""
    asked = []

    def objectives(task, method, etas, *, seeds, root, rounds):
        asked.append((task.label, tuple(np.round(etas, 6)), method.label, method.betas, root, rounds))
        behind = 1.0 if (task.label, method.label) == ("b", "FedHAPG-S") else 0.0
        final = np.array([[[11.2], [15.2 - behind]], [[11.0], [15.0]]]) + np.zeros(seeds)  # beta 0.2, beta 1: PAvg
        return np.stack([np.full_like(final, 5.0), final], axis=2)[: len(method.betas)]

    monkeypatch.setattr(held_out, "objectives", objectives)
    tasks = (Task("a", heterogeneity=0.0), Task("b"))
    monkeypatch.setitem(held_out.SIZES, "smoke", held_out.Size(99, 3, (0.001, 0.01), tasks, (held_out.HESSIAN,)))
    outcome = held_out.run("smoke", lambda what, share: None)
    assert {entry[:2] for entry in asked} == {("a", (0.01, 0.1)), ("b", (0.001, 0.01))}
    assert {entry[2:] for entry in asked} == {("FedSVRPG-S", (0.2, 1.0), 99, (0, 100)), ("FedHAPG-S", (0.2,), 99, (0, 100))}
    assert outcome.notes[:2] == ["FedSVRPG-S: won: a, b; not worse: none; lost: none.", "FedHAPG-S: won: a; not worse: none; lost: b."]
    assert [panel.title for panel in outcome.panels] == ["a: won", "b: FedSVRPG-S won, FedHAPG-S lost"]
    assert [line.label for line in outcome.panels[0].lines] == ["FedSVRPG-S", "FedHAPG-S", "PAvg"]
    assert len(outcome.rows) == 14
    assert len({row.what for row in outcome.rows}) == 14

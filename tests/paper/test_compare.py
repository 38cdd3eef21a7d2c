"""The fair comparison: choices on made-up scores, what is run on which seeds, and its verdicts."""

import numpy as np
import pytest

from fedpg.paper import compare, held_out, held_out_control
from fedpg.paper.compare import ENTRANTS, MARGIN, ratios_of, settings_of, tune
from fedpg.paper.method import CALM, METHODS, PAVG
from fedpg.paper.results import select
from fedpg.paper.task import Task
from fedpg.runs.sweep import Curves

ETAS = np.array([0.01, 0.1, 1.0, 10.0])


def test_every_entrant_may_choose_its_server_step_and_pavg_has_the_widest_choice():
    assert ratios_of(PAVG) == (1.0, 1.1, 1.5, 2.0)
    assert {ratios_of(method) for method in ENTRANTS if method is not PAVG} == {(1.0, 1.5)}
    assert ratios_of(CALM.but("CALM, beta 1", {"beta": 1.0})) == (1.0,)
    found = settings_of(METHODS["SCAFFOLD"], np.array([0.1, 0.2]), 10)
    np.testing.assert_allclose(found["local_lr"], [0.1, 0.2, 0.1, 0.2])
    np.testing.assert_allclose(found["global_lr"], [1.0, 2.0, 1.5, 3.0])


def test_the_best_setting_and_its_width():
    """The gain is 10 from a start of 0: 9.81 is within 2 % of the best and 9.79 is not. A failed seed counts as the start."""
    scores = np.array([[[1.0], [2.0], [3.0], [2.0]], [[9.79], [9.81], [10.0], [9.9]]])
    best = tune(scores, ETAS, (1.0, 2.0), 0.0)
    assert (best.eta, best.ratio, best.at_edge, best.score) == (1.0, 2.0, False, 10.0)
    assert best.width == pytest.approx(2.0)
    failed = tune(np.array([[[np.nan, 10.0], [4.0, 4.0]]]), ETAS[:2], (1.0,), -3.0)
    assert (failed.eta, failed.score, failed.at_edge, failed.width) == (0.1, 4.0, True, 0.0)


def test_a_gap_in_the_plateau_ends_the_width():
    assert tune(np.array([[[10.0], [5.0], [10.0], [10.1]]]), ETAS, (1.0,), 0.0).width == pytest.approx(1.0)


LEVELS = {"PAvg": 8.0, "FedAvg-M": 8.5, "SCAFFOLD": 9.0, "heavy ball": 8.2, "MFPO": 8.1, "CALM": 9.0}


def measured(levels, asked, better_elsewhere=()):
    """A `measure` whose J is best at eta 0.1 and grows with the ratio; on the tuning seeds all scatter alike."""

    def measure(task, method, settings, *, seeds, root, rounds=()):
        asked.append((method.name, root, seeds, len(settings["local_lr"])))
        eta, ratio = settings["local_lr"], np.asarray(settings["global_lr"]) / (np.asarray(settings["local_lr"]) * task.local_steps)
        level = levels[method.name] + (1.0 if root == 1 and method.name in better_elsewhere else 0.0)
        height = level - np.abs(np.log10(np.asarray(eta) / 0.1)) + 0.1 * (ratio - 1.0)
        values = height[:, None] + 0.01 * np.linspace(-1.0, 1.0, seeds)
        curve = np.stack([np.full_like(values, 1.0), values], axis=-1)[..., -max(len(rounds), 1) :]
        return Curves(np.array(rounds), curve, curve, curve, curve, curve, curve, np.full(values.shape, -1))

    return measure


def test_settings_are_chosen_on_tuning_seeds_and_reported_on_others(monkeypatch):
    asked = []
    monkeypatch.setattr(compare, "measure", measured(LEVELS, asked))
    rows, points = compare.compare(Task("here"), ETAS, tuning=3, seeds=5, roots=(1, 2))
    assert asked[:2] == [("PAvg", 1, 3, 16), ("PAvg", 2, 5, 1)]
    assert asked[-2:] == [("CALM", 1, 3, 8), ("CALM", 2, 5, 1)]
    (plain,) = select(rows, method="PAvg", quantity="best objective")
    assert (plain.eta, plain.ratio, plain.n, plain.mean) == (0.1, 2.0, 5, pytest.approx(8.1))
    assert {row.method: row.mean for row in select(rows, quantity="width")} == dict.fromkeys([m.name for m in ENTRANTS], 0.0)
    assert [point.eta for point in select(points, method="CALM")] == ETAS.tolist()
    gap, margin = rows[-2:]
    assert (gap.against, gap.mean, gap.verdict.outcome) == ("PAvg", pytest.approx(0.95), "holds")
    assert (margin.against, margin.verdict.outcome, margin.flags) == ("SCAFFOLD", "holds", ("best rival",))
    assert margin.verdict.bound == pytest.approx(-MARGIN * (9.05 - 1.0))


@pytest.mark.parametrize(("behind", "outcome"), [(0.1, "holds"), (0.3, "fails")])
def test_the_margin_decides(monkeypatch, behind, outcome):
    """The best rival gains 8.05: CALM may be 0.161 behind."""
    monkeypatch.setattr(compare, "measure", measured(LEVELS | {"CALM": 9.0 - behind}, []))
    rows, _ = compare.compare(Task("here"), ETAS, tuning=3, seeds=5, roots=(1, 2))
    assert rows[-1].verdict.outcome == outcome


def test_the_best_rival_is_chosen_on_the_tuning_seeds(monkeypatch):
    monkeypatch.setattr(compare, "measure", measured(LEVELS, [], better_elsewhere=("MFPO",)))
    rows, _ = compare.compare(Task("here"), ETAS, tuning=3, seeds=5, roots=(1, 2))
    assert rows[-1].against == "MFPO"
    assert rows[-1].mean == pytest.approx(9.05 - 8.15)


def test_held_out_counts_its_verdicts_and_leaves_out_what_is_not_installed(monkeypatch):
    def compared(task, etas, **given):
        if task.name == "LunarLander":
            raise held_out.UserError("needs the extra gym")
        assert (given["tuning"], given["seeds"]) == (2, 8)
        return compare_made(task)

    def compare_made(task):
        monkeypatch.setattr(compare, "measure", measured(LEVELS, []))
        return compare.compare(task, ETAS, tuning=3, seeds=5, roots=(1, 2))

    monkeypatch.setattr(held_out, "compare", compared)
    result = held_out.run(lambda what, share: None, **held_out_control.SCALES["full"])
    assert result.notes[0] == "LunarLander left out: needs the extra gym"
    count = len(held_out.CONTROL) - 1
    assert result.notes[1] == f"CALM ahead of PAvg: {count} of {count} tasks; unclear 0; not so 0."
    forest, curves = held_out.figures(result)
    assert len(curves.plots) == count
    assert len(forest.plots[0].order) == count
    (gain,) = {-100.0 * compare.MARGIN / row.verdict.bound for row in select(result.rows, flags="best rival")}
    best = [row.mean for row in select(result.rows, flags="best rival")]
    assert [row.mean for row in forest.rows if row.quantity == "CALM - best rival"] == pytest.approx([-gain * mean for mean in best])

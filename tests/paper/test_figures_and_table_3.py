"""Figures 1 and 2, and Table 3: what is run, and what is said of curves whose order is known."""

import numpy as np
import pytest

from fedpg.paper import figure_1, figure_2, presets, table_3
from fedpg.paper.presets import Key, preset
from fedpg.paper.results import select
from helpers.curves import made_up

CONFIG = preset("halfcheetah", "fedsvrpg-m", **figure_1.ROBOTS["fedsvrpg-m"] | {"local_lr": 0.0012})
BETAS = figure_1.SCALES["full"]["betas"]
KEYS = list(figure_1.configurations(CONFIG, BETAS, True))
ENDS = [90.0, 80.0, 70.0, 60.0, 95.0]
"""Of beta 0.2, 0.5, 0.8, 1; and beta 1 with the longer step."""


def test_figure_1_runs_every_curve_with_its_step_size():
    made = figure_1.configurations(CONFIG, BETAS, True)
    assert [(key.method, key.beta, round(key.eta, 6)) for key in made] == [
        *(("FedSVRPG-M", beta, 0.0012) for beta in BETAS),
        ("FedSVRPG-M", 1.0, 0.006),
    ]
    for key, config in made.items():
        assert (config.beta, config.local_lr) == (key.beta, key.eta)
        assert config.algorithm == "fedsvrpg-m"
    hessian = preset("halfcheetah", "fedhapg-m", **figure_1.ROBOTS["fedhapg-m"])
    assert {config.algorithm for config in figure_1.configurations(hessian, BETAS, True).values()} == {"fedhapg-m"}
    assert hessian.local_lr == 0.0012


def judged(claimed, ends=ENDS):
    found = {key: made_up(end) for key, end in zip(KEYS, ends, strict=True)}
    return figure_1.judge(claimed, found, True)


def test_every_claim_of_a_panel_of_figure_1_is_judged():
    rows = judged(0.2)
    differences = [row for row in select(rows, quantity="return over the run") if row.against]
    outcomes = {(row.method, row.against, round(row.against_eta or 0.0, 4), round(row.eta, 4)): row.verdict.outcome for row in differences}
    assert outcomes == {
        ("FedSVRPG-M", "beta 1", 0.0, 0.0012): "holds",
        ("FedSVRPG-M", "beta 1", 0.006, 0.0012): "fails",
    }
    (lead,) = select(rows, quantity="lead")
    assert (lead.verdict.outcome, lead.against, lead.mean) == ("holds", "beta 0.5", pytest.approx(5.0))
    (gain,) = select(rows, quantity="least gain")
    assert (gain.beta, gain.mean, gain.verdict.outcome) == (1.0, pytest.approx(50.0), "holds")
    assert [row.mean for row in rows[:5]] == pytest.approx([50.0, 45.0, 40.0, 35.0, 52.5])


def test_a_wrong_best_beta_and_a_fall_are_found():
    (lead,) = select(judged(0.8), quantity="lead")
    assert (lead.verdict.outcome, lead.against) == ("fails", "beta 0.2")
    (gain,) = select(judged(0.2, [90.0, 5.0, *ENDS[2:]]), quantity="least gain")
    assert (gain.beta, gain.verdict.outcome) == (0.5, "fails")


def test_a_run_of_figure_1_compares_the_spread_of_both_algorithms(monkeypatch):
    def learn(configs, processes=1, tell=None):
        return {key: made_up(50.0, scatter=4.0 if key.method == "FedSVRPG-M" else 1.0, seeds=9) for key in configs}

    monkeypatch.setattr(presets, "learn", learn)
    monkeypatch.setattr(presets, "missing", lambda env: "halfcheetah needs MuJoCo" if env == "halfcheetah" else None)
    result = figure_1.run(lambda what, share: None, **figure_1.SCALES["full"])
    (spread,) = select(result.rows, quantity="spread")
    assert (spread.mean, spread.verdict.outcome) == (pytest.approx(4.0), "holds")
    assert "left out: halfcheetah needs MuJoCo" in result.notes
    levels, gaps = figure_1.figures(result)
    assert [plot.title for plot in levels.plots] == ["CartPole, FedSVRPG-M", "CartPole, FedHAPG-M"]
    assert {row.mean for row in gaps.rows if row.method == "beta 1"} == {0.0}
    assert "beta 1, 5 times the step" in {row.method for row in levels.rows}
    assert {point.round for point in result.points} == set(range(0, 11, 2))


def figure_2_rows(ends):
    return figure_2.judge({Key("CartPole", "FedSVRPG-M", 0.2, 0.1, agents): made_up(end) for agents, end in ends.items()}, 50.0, True)


def test_figure_2_judges_more_agents():
    rows = figure_2_rows({4: 60.0, 5: 60.0, 8: 70.0})
    assert [(row.N, row.verdict.outcome) for row in select(rows, quantity="return over the run")] == [(5, "unclear"), (8, "holds")]
    faster, linear = select(rows, quantity="speed-up")
    assert faster.mean == pytest.approx(8.0 / (40 / 6.0), rel=0.01)  # 40 of the way up at 5 and at 6 a round
    assert (faster.verdict.outcome, linear.verdict.outcome, linear.verdict.bound) == ("holds", "fails", 2.0)
    assert [row.verdict.outcome for row in select(figure_2_rows({4: 70.0, 8: 60.0}), quantity="speed-up")] == ["fails", "fails"]


def table_3_rows(env, ends, **more):
    return table_3.judge(env, {Key("x", "FedHAPG-M", beta, 0.1): made_up(end, start=end, **more) for beta, end in ends.items()}, True)


def test_table_3_measures_distances_in_published_errors_and_our_own():
    rows = {row.beta: row for row in table_3_rows("walker2d", {0.2: 130.0, 0.5: 287.0, 1.0: 320.0})}
    assert (rows[0.2].verdict.outcome, rows[1.0].verdict.outcome) == ("holds", "fails")
    assert (rows[0.5].published, rows[0.5].error) == (287.14, 72.26)
    (noisy,) = table_3_rows("walker2d", {1.0: 320.0}, scatter=40.0)
    assert noisy.verdict.outcome == "holds"
    assert noisy.verdict.unit == pytest.approx(np.hypot(3.02, 40.0 * np.linspace(-1, 1, 4).std(ddof=1) / 2))


def test_table_3_judges_the_order_of_the_betas():
    rows = table_3_rows("cartpole", {0.2: 83.0, 0.5: 86.0, 0.8: 90.0, 1.0: 85.0})
    above, lead = rows[-2:]
    assert (above.published, above.verdict.outcome, lead.verdict.outcome, lead.against) == (0.66, "holds", "holds", "beta 0.5")
    assert table_3_rows("cartpole", {0.2: 99.0, 0.8: 90.0, 1.0: 85.0})[-1].verdict.outcome == "fails"
    for column in table_3.PUBLISHED.values():
        assert max(column, key=lambda beta: column[beta][0]) == table_3.BEST

"""Figure 1: what is run, and what is said of curves whose order is known."""

from __future__ import annotations

import pytest

from fedpg.paper import figure_1, outcome
from fedpg.paper.figure_1 import CONTROL, OURS, OURS_FAR, PLAIN, PLAIN_FAR, SCALES, Scale
from fedpg.paper.runs import task
from helpers.curves import made_up

ENDS = {"beta 0.2": 90.0, "beta 0.5": 80.0, "beta 0.8": 70.0, "beta 1": 60.0, CONTROL: 95.0}
ENDS |= {OURS: 60.0, OURS_FAR: 99.0, PLAIN: 60.0, PLAIN_FAR: 98.0}
FULL = SCALES["full"]


def verdicts(rows) -> dict[str, str]:
    return {row.what.partition(": ")[2]: row.verdict for row in rows}


def test_every_claim_of_a_panel_is_judged():
    runs = {name: made_up(end) for name, end in ENDS.items()}
    said = verdicts(figure_1.judge("CartPole, FedSVRPG-M", 0.2, runs, FULL.betas, True))
    assert said["every beta rises; least gain (beta 1)"] == "holds"
    assert said["beta 0.2 above beta 1"] == "holds"
    assert said["lead of beta 0.2 on the best other"] == "holds"
    assert said[f"beta 0.2 above {CONTROL}"] == "the opposite holds"
    assert said[f"{OURS}, above {PLAIN}"] == "no difference seen"
    assert said[f"{OURS_FAR}, above {PLAIN_FAR}"] == "holds"
    said = verdicts(figure_1.judge("CartPole, FedHAPG-M", 0.8, runs, FULL.betas, True))
    assert said["lead of beta 0.8 on the best other"] == "does not hold: beta 0.2 is better"
    runs["beta 0.5"] = made_up(5.0)
    assert verdicts(figure_1.judge("", 0.2, runs, FULL.betas, True))["every beta rises; least gain (beta 0.5)"] == "does not hold"


def test_heights_are_the_first_rows():
    runs = {name: made_up(end) for name, end in ENDS.items()}
    rows = figure_1.judge("CartPole, FedSVRPG-M", 0.2, runs, FULL.betas, True)
    assert [row.ours for row in rows[:6]] == pytest.approx([50.0, 45.0, 40.0, 35.0, 52.5, 35.0])
    assert rows[0].what == "CartPole, FedSVRPG-M, beta 0.2: mean return over the run"


def test_the_spread_is_compared_between_algorithms():
    wide, narrow = ({figure_1.label(beta): made_up(50.0, scatter=scatter, seeds=9) for beta in FULL.betas} for scatter in (4.0, 1.0))
    found = figure_1.spread_row("cartpole", {"fedsvrpg-m": wide, "fedhapg-m": narrow}, FULL.betas, True)
    assert (found.ours, found.verdict) == (pytest.approx(4.0), "holds")
    found = figure_1.spread_row("cartpole", {"fedsvrpg-m": narrow, "fedhapg-m": wide}, FULL.betas, True)
    assert found.verdict == "the opposite holds"


@pytest.mark.parametrize("together", [True, False])
def test_jobs_cover_every_curve_with_one_step_size(together):
    config = task("halfcheetah", "fedhapg-m", **FULL.given["halfcheetah"]["fedhapg-m"])
    jobs = figure_1.jobs(config, FULL, together)
    assert [name for names in jobs for name in names] == list(ENDS)
    assert len(jobs) == (2 if together else 9)
    for names, (made, settings) in jobs.items():
        assert made.algorithm == ("fedhapg-s" if names[0].startswith(("ours", "PAvg")) else "fedhapg-m")
        given = {CONTROL: 1.0, OURS: 0.2, OURS_FAR: 0.2, PLAIN: 1.0, PLAIN_FAR: 1.0}
        assert settings["beta"] == [given.get(name) or float(name.split()[1]) for name in names]
        steps = dict(zip(names, settings["local_lr"], strict=True))
        assert all(step == pytest.approx(0.006 if name in (CONTROL, OURS_FAR, PLAIN_FAR) else 0.0012) for name, step in steps.items())


def test_a_full_run_has_four_panels_and_fits_in_a_small_file(monkeypatch, tmp_path):
    def fake(env, configs, scale, tell):
        return {
            algorithm: {name: made_up(end, rounds=60, seeds=config.seeds) for name, end in ENDS.items()}
            for algorithm, config in configs.items()
        }

    monkeypatch.setattr(figure_1, "measure", fake)
    found = figure_1.run("full", lambda what, share: None)
    assert [panel.title.split(",")[0] for panel in found.panels] == ["CartPole"] * 2 + ["HalfCheetah"] * 2
    assert {len(panel.lines) for panel in found.panels} == {len(ENDS) - 2}, "PAvg is drawn once"
    assert found.settings["HalfCheetah, FedHAPG-M"]["local_lr"] == 0.0012
    assert found.settings["CartPole, FedSVRPG-M"]["local_lr"] == 0.0003
    saved = outcome.save(found, tmp_path)
    assert saved.stat().st_size < 80_000
    assert [row.what for row in outcome.load(saved).rows] == [row.what for row in found.rows]


def test_a_tiny_run_without_mujoco(monkeypatch):
    tiny = {"rounds": 2, "eval_every": 1, "seeds": 2, "batch": 1, "horizon": 5, "local_steps": 1, "u0": "0", "eval_episodes": 1}
    scale = Scale((0.2, 1.0), False, {"cartpole": {"fedsvrpg-m": tiny}, "halfcheetah": {"fedsvrpg-m": tiny}}, 1)
    monkeypatch.setitem(SCALES, "smoke", scale)
    monkeypatch.setattr(figure_1, "missing", lambda env: "halfcheetah needs MuJoCo" if env == "halfcheetah" else None)
    told: list[str] = []
    found = figure_1.run("smoke", lambda what, share: told.append(what))
    assert {panel.title for panel in found.panels} == {"CartPole, FedSVRPG-M"}
    assert "left out: halfcheetah needs MuJoCo" in found.notes
    assert {row.verdict for row in found.rows} == {"", "smoke: too short to judge"}
    assert all(1.0 <= row.ours <= 5.0 for row in found.rows[:2])  # nobody balances longer than the horizon
    assert set(told) == {"CartPole"}

"""What is read off learning curves, on curves with known answers; and how runs at presets are made."""

import jax
import numpy as np
import pytest

from fedpg import envs
from fedpg.paper import presets
from fedpg.paper.presets import Key, preset
from fedpg.runs.sweep import Curves, sweep
from helpers.curves import made_up

TINY = {"rounds": 2, "eval_every": 1, "seeds": 2, "batch": 1, "horizon": 5, "local_steps": 1, "u0": 0, "eval_episodes": 1}
ONE, OTHER = Key("CartPole", "A", 0.2, 0.1), Key("CartPole", "B", 1.0, 0.5)


def test_over_the_run_is_the_area_under_the_curve_per_round():
    assert presets.over_run(made_up(30.0, scatter=0.0)).tolist() == pytest.approx([20.0] * 4)
    uneven = made_up(30.0)._replace(rounds=np.array([0, 1, 2, 3, 4, 10]), returns=np.array([[0.0, 0, 0, 0, 10, 10]]))
    assert presets.over_run(uneven).tolist() == pytest.approx([(5 + 60) / 10])


def test_final_is_the_mean_of_the_last_evaluations():
    assert presets.final(made_up(0.0)._replace(returns=np.array([[9.0, 9, 9, 1, 2, 6]]))).tolist() == [3.0]


def test_rounds_to_a_level_are_interpolated_and_end_with_the_run():
    returns = np.array([[0.0, 10, 20, 80, 85, 99], [95, 1, 1, 1, 1, 1], [0, 1, 2, 3, 4, 5], [0, 0, 100, 0, 0, 100]])
    assert presets.rounds_to(made_up(0.0)._replace(returns=returns), 50.0).tolist() == [5.0, 1.0, 10.0, 3.0]


def test_differences_are_paired_and_say_in_what_both_differ():
    seeds = np.array([10.0, 20.0, 30.0, 40.0])  # they differ far more between seeds than the claim is about
    values = {ONE: seeds + np.array([1.0, 1.1, 0.9, 1.0]), OTHER: seeds}
    found = presets.difference("final return", values, ONE, OTHER, True)
    assert (found.mean, found.n, found.verdict.outcome, found.against, found.against_eta) == (pytest.approx(1.0), 4, "holds", "B", 0.5)
    assert presets.difference("final return", values, OTHER, ONE, True).verdict.outcome == "fails"
    assert presets.difference("final return", values, ONE, OTHER, False).verdict is None
    values = {ONE: seeds, ONE._replace(beta=0.5): seeds[:2], ONE._replace(N=8): seeds}
    short = presets.difference("final return", values, ONE, ONE._replace(beta=0.5), True)
    assert (short.n, short.against, short.against_eta, short.verdict.outcome) == (2, "beta 0.5", None, "unclear")
    assert presets.difference("final return", values, ONE._replace(N=8), ONE, True).against == "N = None"


def test_the_lead_is_on_the_best_of_the_others():
    values = {ONE._replace(beta=beta): np.array([level, level + 0.1]) for beta, level in ((0.2, 5.0), (0.5, 3.0), (1.0, 6.0))}
    found = presets.lead("lead", values, ONE, True)
    assert (found.mean, found.against) == (pytest.approx(-1.0), "beta 1")


def test_the_spread_ratio_is_that_of_standard_deviations():
    wide, narrow = ([made_up(50.0, scatter=scatter, seeds=9)] * 2 for scatter in (4.0, 1.0))
    found = presets.spread_ratio(wide, narrow)
    assert found.mean == pytest.approx(4.0)
    assert found.low == pytest.approx(4.0)  # the same seeds are drawn for both
    random = np.random.default_rng(0)
    ones, others = (made_up(0.0)._replace(returns=scale * random.normal(size=(40, 6))) for scale in (2.0, 1.0))
    found = presets.spread_ratio([ones], [others])
    assert found.low < 2.0 < found.high
    assert found.mean == pytest.approx(ones.returns[:, 1:].std(0).mean() / others.returns[:, 1:].std(0).mean())


def test_agents_differ_only_in_where_they_start():
    config = preset("cartpole", "fedsvrpg-m", agents=3, **TINY)
    agents = envs.make("cartpole", 3, config.heterogeneity, config.env_option).agents(jax.random.key(0), 0)
    assert {name for name, values in vars(agents).items() if len(set(np.asarray(values).tolist())) > 1} == {"start_range"}


def test_configurations_that_differ_in_beta_and_step_share_a_program(monkeypatch):
    asked = []

    def fake(config, settings, steps):
        asked.append((config.seed, config.global_lr, settings, steps))
        returns = np.full((len(settings["beta"]), 2, 2, 3), 10.0) * np.array(settings["beta"])[:, None, None, None]
        used = np.zeros(returns.shape[:3])
        return Curves(np.array([0, 2]), returns, returns, None, used, used, used, np.full(returns.shape[:2], -1))

    monkeypatch.setattr(presets, "sweep", fake)
    configs = {
        (beta, seed): preset("cartpole", "fedsvrpg-m", beta=beta, seed=seed, local_lr=beta / 10, **TINY)
        for beta in (0.2, 0.5)
        for seed in (1, 2)
    }
    found = presets.learn(configs, steps=7.0)
    assert asked == [(seed, None, {"beta": [0.2, 0.5], "local_lr": [0.02, 0.05]}, 7.0) for seed in (1, 2)]
    assert {key: curves.returns[0, 0] for key, curves in found.items()} == {key: 10.0 * key[0] for key in configs}
    assert list(found) == list(configs)


def test_returns_count_at_least_the_floor_and_curves_of_failed_runs_go_on_there(monkeypatch):
    returns = np.array(
        [[[[100.0, -1e9], [np.nan, np.nan]], [[7.0, 7.0], [np.nan, np.nan]]]]
    )  # one setting, two seeds, two rounds, two agents
    used = np.zeros((1, 2, 2))
    gone = Curves(np.array([0, 2]), returns, returns, None, used, used, used, np.array([[1, 2]]))
    monkeypatch.setattr(presets, "sweep", lambda config, settings, steps: gone)
    config = preset("halfcheetah", "calm", **TINY | {"rounds": 9})
    (curves,) = presets.learn({"x": config}).values()
    assert curves.rounds.tolist() == [0, 2, 9]
    assert curves.returns.tolist() == [[-100.0, -300.0, -300.0], [7.0, -300.0, -300.0]]
    assert len(presets.failures({ONE: curves})) == 1


@pytest.mark.slow
def test_a_setting_of_a_shared_program_learns_what_it_learns_alone():
    configs = {beta: preset("cartpole", "fedsvrpg-m", beta=beta, **TINY) for beta in (0.2, 1.0)}
    found, alone = presets.learn(configs), sweep(configs[0.2])
    assert found[0.2].returns.shape == (2, 3)
    np.testing.assert_allclose(found[0.2].returns, alone.returns[0].mean(-1))
    assert np.all((found[1.0].returns >= 1.0) & (found[1.0].returns <= 5.0))  # nobody balances longer than the horizon
    np.testing.assert_array_equal(found[0.2].trajectories[:, -1], 2 * 5 * 1)

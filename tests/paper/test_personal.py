"""Personal heads: the score to beat is local-only's upper bound, methods are scored against common params, and budgets hold."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.paper import arena, personal
from fedpg.paper.arena import FINITE, Played
from fedpg.paper.results import select

SIZES = {"budgets": {FINITE.name: 40}, "tuning": 1, "seeds": 4, "rounds": 4, "unseen_seeds": 2, "unseen": 2}


def run_with(monkeypatch, heads):
    """Common params end at 2, agents alone at 3 with REINFORCE, and personal heads at `heads`; all start at 0."""
    worth = {personal.ALONE: 3.0, "PPO, personal heads": heads, "PPO, local only": 4.0, "FedAvg-PPO": 9.0}

    def made_up(name, count):
        spread = np.linspace(-0.1, 0.1, 5)
        return {
            part: Played(np.zeros(5), np.full((count, 5), worth.get(name, 2.0)) + spread, 10.0, 1) for part in personal.PARTS[FINITE.name]
        }

    monkeypatch.setattr(arena, "play", lambda method, task, *asked: made_up(method.name, 12))
    monkeypatch.setattr(personal, "learn", lambda name, task, *asked: made_up(name, len(personal.ETAS)))
    returns = dict(zip(personal.WAYS, ([1.0, 3.0], [2.0, 3.0], [3.0, 5.0], [1.0, 1.0], [2.0, 5.0]), strict=True))
    new = {name: personal.Newcomers(np.array(values), steps) for steps, (name, values) in enumerate(returns.items())}
    monkeypatch.setattr(personal, "newcomers", lambda task, *asked: new)
    return personal.run(lambda what, share: None, **SIZES)


@pytest.mark.parametrize(("heads", "outcome"), [(4.0, "holds"), (3.0, "unclear"), (2.0, "fails")])
def test_heads_must_score_above_the_upper_bound_of_agents_alone(heads, outcome, monkeypatch):
    result = run_with(monkeypatch, heads)
    (judged,) = select(result.rows, quantity="score", method="PPO, personal heads", task="all tasks")
    (alone,) = select(result.rows, quantity="score", method=personal.ALONE, task="all tasks")
    assert judged.verdict.outcome == outcome
    assert judged.verdict.bound == pytest.approx(alone.high, abs=1e-4)


def test_one_is_the_best_of_the_methods_with_common_params_and_reinforce(monkeypatch):
    """FedAvg-PPO, which ends at 9, does not move it."""
    result = run_with(monkeypatch, 4.0)
    scores = {one.method: one for one in select(result.rows, quantity="score", task="conflict MDPs")}
    assert scores["PAvg"].mean == pytest.approx(1.0)
    assert scores["FedAvg-PPO"].mean == pytest.approx(4.5, rel=0.02)
    assert {one.n for one in scores.values()} == {4}
    (figure,) = personal.figures(result)
    assert [plot.title for plot in figure.plots] == ["all tasks", "random MDPs", "conflict MDPs"]


def test_unseen_agents_are_compared_with_agents_alone_seed_by_seed(monkeypatch):
    result = run_with(monkeypatch, 4.0)
    for task in personal.UNSEEN:
        new = {(one.method, one.against): (one.mean, one.x) for one in select(result.rows, quantity="return", task=task)}
        mean_head, best, fitted, briefly, alone = personal.WAYS
        means = (2.0, 2.5, 4.0, 1.0, 3.5)
        ends = {(name, ""): (mean, float(steps)) for steps, (name, mean) in enumerate(zip(personal.WAYS, means, strict=True))}
        gaps = {(fitted, mean_head): (2.0, None), (fitted, best): (1.5, None), (fitted, briefly): (3.0, None), (fitted, alone): (0.5, None)}
        assert new == ends | gaps
        (judged,) = select(result.rows, quantity="return", task=task, against=alone)
        assert (judged.low, judged.high) == pytest.approx((0.5 - 6.353, 0.5 + 6.353), abs=1e-3)  # 1 and 0, not 3, 5 and 2, 5
        assert judged.verdict.outcome == "unclear"  # the mean alone does not decide


@pytest.mark.slow
def test_an_actor_critic_spends_what_the_others_spend():
    """80 trajectories of five agents with 16 each a round: two rounds, and none is begun that could not be paid."""
    for budget, rounds in ((40, 2), (47, 2), (48, 3)):
        made = personal.learn("PPO, personal heads", FINITE, budget, 1)
        assert {(one.trajectories, one.rounds) for one in made.values()} == {(rounds * 80.0, rounds)}
        assert made["conflict MDPs"].final.shape == (len(personal.ETAS), 1)

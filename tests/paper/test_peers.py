"""Peers: the table from made-up trials, what is left out without Stable-Baselines3, and the environments that it learns in."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedpg.paper import peers, sb3
from fedpg.paper.peers import CALM, FEDAVG, HOPPER, POOLED, SB3_POOLED, WALKER, Size, Trial, config_of, rows_of, spec_of
from fedpg.paper.results import select
from fedpg.runs import evaluation

SIZE = Size(agents=2, unseen=3, steps=500_000, points=2, episodes=2)


def made_up(*means: float) -> Trial:
    """Seeds with these means; agents are 100 above and below, unseen ones 10 below."""
    own = np.array([[mean - 100.0, mean + 100.0] for mean in means])
    return Trial(np.array([0, 500_000]), np.zeros((len(means), 2)), own, own[:, :1] + 90.0)


def test_rows_of_made_up_trials():
    found = {FEDAVG: made_up(1700.0, 1800.0), CALM: made_up(1900.0, 2100.0), POOLED: made_up(2000.0, 2000.0)}
    rows = rows_of(HOPPER, SIZE, found)
    returns = {one.method: one for one in select(rows, quantity="return", against="")}
    assert {name: (one.mean, one.verdict and one.verdict.outcome) for name, one in returns.items()} == {
        FEDAVG: (1750.0, "fails"), CALM: (2000.0, "holds"), POOLED: (2000.0, None),
    }  # fmt: skip
    assert [one.mean for one in select(rows, quantity="worst agent")] == [1650.0, 1900.0, 1900.0]
    assert [one.mean for one in select(rows, quantity="unseen agents")] == [1740.0, 1990.0, 1990.0]
    (gap,) = select(rows, quantity="return", against=FEDAVG)
    assert (gap.mean, gap.verdict.outcome) == (250.0, "unclear")
    shares = {one.method: (one.mean, one.verdict.outcome) for one in select(rows, quantity="share of pooled")}
    assert shares == {FEDAVG: (0.875, "fails"), CALM: (1.0, "holds")}


def test_rounds_follow_from_the_total_number_of_steps():
    config = config_of(HOPPER, SIZE, 1, 0)
    per_round = 2 * config.local_steps * config.batch * config.rollout_steps
    assert abs(config.rounds * per_round - 500_000) <= per_round / 2
    assert config.eval_every == config.rounds // 2


@pytest.mark.parametrize("installed", [True, False])
def test_without_stable_baselines_its_rows_are_missing_and_a_line_says_so(installed, monkeypatch):
    asked, said = [], []

    def fake(method, task, size, seeds, root):
        asked.append((method, seeds, root - peers.ROOT))
        return made_up(*[2000.0] * seeds)

    monkeypatch.setattr(peers, "trial", fake)
    monkeypatch.setattr(peers, "speeds", lambda task, size, repeats: {FEDAVG: [3000.0] * repeats, SB3_POOLED: [800.0] * repeats})
    monkeypatch.setattr(sb3, "installed", lambda: installed)
    small = peers.SCALES["smoke"] | {"seeds": 4, "together": 2, "their_seeds": 2}
    result = peers.run(lambda what, share: said.append(what), **small)
    ours = [(name, 2, first) for name in (FEDAVG, CALM) for first in (0, 2)]
    assert asked == ours + [(SB3_POOLED, 1, 0), (SB3_POOLED, 1, 1)] * installed
    assert (sb3.MISSING in said, result.notes) == (not installed, [] if installed else [sb3.MISSING])
    assert select(result.rows, quantity="return", method=FEDAVG, against="")[0].n == 4
    speed = select(result.rows, quantity="speed ratio")
    assert [(one.mean, one.verdict.outcome) for one in speed] == [(3.75, "holds")] * installed


def test_a_task_may_have_its_own_methods_and_seeds(monkeypatch):
    asked = []

    def fake(method, task, size, seeds, root):
        asked.append((task.name, method, seeds, root - peers.ROOT))
        return made_up(*[2000.0] * seeds)

    monkeypatch.setattr(peers, "trial", fake)
    monkeypatch.setattr(sb3, "installed", lambda: False)
    tasks = (dataclasses.replace(peers.PHYSICS, methods=()), HOPPER)
    sizes = peers.SCALES["full"] | {"tasks": tasks, "seeds": 3, "together": 2, "speed": 0, "processes": 1}
    result = peers.run(lambda what, share: None, **sizes)
    varied = [(peers.PHYSICS.name, name, 2, first) for name in peers.OURS for first in range(0, peers.PHYSICS.seeds, 2)]
    alike = [(HOPPER.name, name, seeds, first) for name in (FEDAVG, POOLED) for seeds, first in ((2, 0), (1, 2))]
    assert asked == varied + alike
    assert {one.method for one in select(result.rows, comparison="-")} == {CALM, peers.SCAFFOLD, peers.MOMENTUM}


def test_a_task_may_have_more_steps_and_settings_of_its_own():
    """As many rounds as the steps need; the pooled learner may have other lanes than the agents."""
    rounds = {task: config_of(task, SIZE, 1, 0).rounds for task in (peers.CHEETAH, peers.MILLION)}
    assert abs(rounds[peers.MILLION] - 2 * rounds[peers.CHEETAH]) <= 1
    fed, pooled = (config_of(HOPPER, SIZE, 1, 0, name) for name in (FEDAVG, POOLED))
    assert (fed.rollout_steps, pooled.rollout_steps, pooled.batch) == (64, 128, 4)
    of = {name: config_of(peers.PHYSICS, SIZE, 1, 0, name) for name in (FEDAVG, CALM)}
    assert {(config.local_steps, config.global_lr, config.share) for config in of.values()} == {(4, 0.008, "critic")}


def test_its_environments_are_those_of_the_agents():
    """A lane gives the return that a session of the engine gives from the same start, and ends where it ends."""
    config = config_of(dataclasses.replace(WALKER, heterogeneity=1.0, vary="body"), SIZE, 1, 5)
    where = evaluation.place(spec_of(config), horizon=60)
    rng, host = np.random.default_rng(0), where.federation.environment.host
    actions = rng.normal(size=(60, 6))
    for agent in (0, 1):
        env = sb3.lane(where, 0, agent, 7)
        seen, _ = env.reset()
        session = host.reset(np.array([agent]), sb3.starts(where, 0, agent, sb3.BLOCK, 8)[:1])
        np.testing.assert_array_equal(seen, session.observation[0])
        over, total, expected, steps = False, 0.0, 0.0, 0
        while not over:
            seen, reward, terminated, truncated, _ = env.step(actions[steps])
            after = session.step(actions[steps][None])
            np.testing.assert_array_equal(seen, after.observation[0])
            total, expected, over, steps = total + reward, expected + after.reward[0], terminated or truncated, steps + 1
            assert (terminated, truncated) == (bool(after.terminated[0]), steps == 60 and not after.terminated[0])
        assert total == expected
    still = sb3.returns_of(lambda seen: np.zeros((len(seen), 6)), where, 0, 2, 0)
    assert still.shape == (2,)
    assert still[0] != still[1], "the agents differ"

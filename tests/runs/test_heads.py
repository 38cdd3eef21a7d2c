"""Policies for unseen agents: from the trunk and the mean head, critic first; every agent keeps the better one; the verb evaluates each."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest

import fedpg
from fedpg import trees
from fedpg.algorithms import base
from fedpg.cli import main
from fedpg.envs.base import Federation
from fedpg.learners.actor_critic import Settings
from fedpg.policies import make
from fedpg.problem import actor_critic
from fedpg.runs import evaluation, heads
from fedpg.runs.policy_files import names
from helpers.compare import assert_trees_close, largest_difference
from helpers.policies import balancing, written
from helpers.slide import TRACED, widths

SMALL = {"env": "cartpole", "agents": 2, "heterogeneity": 1.0, "algorithm": "pavg", "personal": "heads", "rounds": 1, "seeds": 2}
SMALL |= {"horizon": 20, "eval_episodes": 1, "local_steps": 1, "hidden": (4,)}
LEARNERS = {
    "reinforce": {"batch": 4, "local_lr": 0.05},
    "actor-critic": {"batch": 1, "rollout_steps": 32, "learner": "actor-critic", "share": "critic", "local_lr": 0.01},
}


@pytest.mark.parametrize("learner", LEARNERS)
def test_an_unseen_agent_learns_from_the_trunk_and_the_mean_head(learner, tmp_path, capsys, monkeypatch):
    run = fedpg.train(**SMALL | LEARNERS[learner], out=tmp_path / "run")
    trained = evaluation.read(run.folder)
    spec = dataclasses.replace(trained.spec, config=trained.spec.config | {"local_lr": 1e-6})  # no agent gets far
    trained, where = trained._replace(spec=spec), evaluation.place(spec, agents=3)
    with monkeypatch.context() as patch:
        patch.setattr(heads, "better", lambda start, fitted, *args, **options: fitted)
        found = heads.fit(trained, where, 2, episodes=3)
    before, after = names(trained.params), names(found.trained.params)
    assert {name: array.shape[:2] for name, array in after.items()} == dict.fromkeys(before, (2, 3))
    for name in before:
        start, new = np.asarray(before[name]).mean(1, keepdims=True), np.asarray(after[name])
        if name.startswith("observation"):
            np.testing.assert_array_equal(new, np.repeat(np.asarray(before[name])[:, :1], 3, axis=1))
        else:  # every layer moves, in every agent by itself
            np.testing.assert_allclose(new, np.repeat(start, 3, axis=1), atol=1e-3)
            assert np.abs(new - start).max() > 0
            assert np.abs(new[:, 0] - new[:, 1]).max() > 0
    if learner == "actor-critic":
        assert found.steps == 2 * 32 + 2 * 3 * 20
        spread = np.abs(np.asarray(before["layers.1.matrix"])[:, 0] - np.asarray(before["layers.1.matrix"])[:, 1]).max()
        assert spread > 5e-3  # so a start from one of the heads would be seen
    scored = evaluation.evaluate(found.trained, found.place, episodes=2)
    assert scored.own().shape == (2, 3, 2)
    assert np.isnan(scored.returns[:, 0, 1]).all()

    assert main(["evaluate", str(run.folder), "--agents", "3", "--fit", "2", "--episodes", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (steps,) = answer["steps_to_fit_heads"]
    assert 2 * 2 * 20 < steps <= 2 * (2 * 20 + 80)
    assert len(answer["results"][0]["per_agent"]) == 3
    assert main(["evaluate", str(run.folder), "--agents", "3", "--fit", "0", "--episodes", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["steps_to_fit_heads"] == [0]
    assert len(answer["results"][0]["per_agent"]) == 6  # both trained heads on each of them


def test_the_critic_learns_alone_on_the_first_batches():
    policy = make("gaussian", TRACED, hidden=(4,), critic=(3,))
    settings = Settings(epochs=2, minibatch=8, critic=(3,))
    problem = actor_critic(Federation(TRACED, widths(1)), policy, settings, horizon=9, discount=0.9, rollout_steps=16)
    params, memory, agent = problem.init_params(jax.random.key(0)), problem.init_memory(), trees.take(widths(1), 0)
    for batch in range(3):
        key = jax.random.key(batch)
        moved, memory, _ = base.sample_direction(heads.critic_first(problem, 2), key, params, agent, memory, 0.01)
        after = base.ascend(problem, params, 0.01, moved.direction)
        for old, new in zip(jax.tree.leaves(params.policy), jax.tree.leaves(after.policy), strict=True):
            assert (np.abs(new - old).max() > 0) == (batch == 2)
        assert largest_difference(after.critic, params.critic) > 0
        params = after


def made(trained, signs):
    """`trained` with such policies instead, one for every agent of its only seed."""
    rows = trees.stack([balancing(sign) for sign in signs])
    return trained._replace(params=jax.tree.map(lambda x: x[None], rows))


def test_every_agent_keeps_the_better_policy_and_the_old_one_in_a_tie(tmp_path):
    written(tmp_path, "categorical", personal=True, hidden=(4,), horizon=60)
    trained = evaluation.read(tmp_path)
    where = evaluation.place(trained.spec)
    for old, new, kept in (((1, -1), (-1, 1), (1, 1)), ((-1, -1), (1, -1), (1, -1)), ((1, 1), (1, 2), (1, 1))):
        for how in ("deterministic",) if 2 in new else evaluation.MODES:
            found = evaluation.better(made(trained, old), made(trained, new), where, episodes=2, how=how)
            assert_trees_close(found.params, made(trained, kept).params, atol=0)
    common = made(trained, (1,))  # one for all
    found = evaluation.better(common, made(trained, (-1, -1)), where, episodes=2, how="stochastic")
    assert_trees_close(found.params, made(trained, (1, 1)).params)


def leaning(sign, lean):
    """`balancing(sign)` that also leans to one side."""
    params = balancing(sign)
    trunk, head = params["layers"]
    return {"layers": [trunk, head | {"bias": np.array([-lean, lean], np.float32)}]}


def test_the_best_head_is_that_which_is_best_on_the_training_agents(tmp_path):
    written(tmp_path, "categorical", seeds=3, personal=True, hidden=(4,), horizon=60)
    trained = evaluation.read(tmp_path)
    pairs = [(balancing(-1), balancing(1)), (leaning(1, 9), leaning(1, -9)), (balancing(0.5), balancing(1.5))]  # of each seed
    best = [balancing(1), leaning(1, 0), balancing(1)]  # the second head; the mean; the mean, as all are perfect
    trained = trained._replace(params=trees.stack([trees.stack(pair) for pair in pairs]))
    assert_trees_close(heads.best_head(trained).params, trees.stack([trees.stack([one]) for one in best]), atol=1e-6)


@pytest.mark.parametrize(("signs", "kept"), [((0.5, 1.5), 1), ((-2, 1), 1)])  # the mean head, and the second one
def test_a_fit_that_destroys_a_policy_ends_with_the_best_head(signs, kept, tmp_path):
    written(tmp_path, "categorical", personal=True, hidden=(4,), horizon=60)
    trained = evaluation.read(tmp_path)
    spec = dataclasses.replace(trained.spec, config=trained.spec.config | {"local_lr": 1000.0, "batch": 2})
    found = heads.fit(made(trained, signs)._replace(spec=spec), evaluation.place(spec, agents=2), 1)
    assert_trees_close(found.trained.params, made(trained, (kept, kept)).params, atol=1e-6)

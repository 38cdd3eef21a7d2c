"""Heads for unseen agents: the trunk stays, every agent moves its own last layer, and the verb evaluates each in its own environment."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedpg
from fedpg.cli import main
from fedpg.runs import evaluation, heads
from fedpg.runs.policy_files import names

SMALL = {"env": "cartpole", "agents": 2, "heterogeneity": 1.0, "algorithm": "pavg", "personal": "heads", "rounds": 1, "seeds": 2}
SMALL |= {"horizon": 20, "eval_episodes": 1, "local_steps": 1, "hidden": (4,)}
LEARNERS = {
    "reinforce": {"batch": 4, "local_lr": 0.05},
    "actor-critic": {"batch": 1, "rollout_steps": 32, "learner": "actor-critic", "share": "critic", "local_lr": 0.01},
}


@pytest.mark.parametrize("learner", LEARNERS)
def test_an_unseen_agent_fits_its_own_last_layer(learner, tmp_path, capsys):
    run = fedpg.train(**SMALL | LEARNERS[learner], out=tmp_path / "run")
    trained = evaluation.read(run.folder)
    where = evaluation.place(trained.spec, agents=3)
    found = heads.fit(trained, where, 2)
    before, after = names(trained.params), names(found.trained.params)
    assert {name: array.shape[:2] for name, array in after.items()} == dict.fromkeys(before, (2, 3))
    for name in before:
        old, new = np.asarray(before[name]), np.asarray(after[name])
        if name.startswith(("layers.0", "observation")):
            np.testing.assert_array_equal(new, np.repeat(old[:, :1], 3, axis=1))
        else:  # the head starts from the mean of the trained ones and moves in every agent by itself
            assert np.abs(new - old.mean(1, keepdims=True)).max() > 0
            assert np.abs(new[:, 0] - new[:, 1]).max() > 0
    if learner == "actor-critic":
        assert found.steps == 2 * 32
    scored = evaluation.evaluate(found.trained, found.place, episodes=2)
    assert scored.own().shape == (2, 3, 2)
    assert np.isnan(scored.returns[:, 0, 1]).all()

    assert main(["evaluate", str(run.folder), "--agents", "3", "--fit", "2", "--episodes", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["steps_to_fit_heads"] == [found.steps]
    assert len(answer["results"][0]["per_agent"]) == 3
    assert main(["evaluate", str(run.folder), "--agents", "3", "--fit", "0", "--episodes", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["steps_to_fit_heads"] == [0]
    assert len(answer["results"][0]["per_agent"]) == 6  # both trained heads on each of them

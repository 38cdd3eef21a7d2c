"""Runs that start from a trained policy, and personal policies."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

import fedpg
from fedpg import UserError
from fedpg.cli import main
from fedpg.runs import policy as files
from fedpg.runs.config import Config
from fedpg.runs.export import export
from fedpg.runs.personal import personalize
from fedpg.runs.policy_files import names
from fedpg.runs.setup import build, resolve
from helpers.policies import ROOM, balancing, written

START = {"env": "cartpole", "algorithm": "pavg", "agents": 2, "rounds": 1, "local_steps": 1, "horizon": 10}


def first_params(**settings):
    """Params before round 0, by name, leading axis seeds."""
    engine = build(resolve(Config(**settings)))
    return {name: np.asarray(leaf) for name, leaf in names(engine.params(engine.init(jax.random.key(settings.get("seed", 0))))).items()}


def test_every_seed_starts_from_its_own_policy_or_from_the_best(tmp_path):
    written(tmp_path / "run", "categorical, scaled", seeds=2, returns=[5.0, 1.0], hidden=(4,))
    trained = files.read(tmp_path / "run").arrays
    two = first_params(**START, init_from=str(tmp_path / "run"), seeds=2)
    three = first_params(**START, init_from=str(tmp_path / "run"), seeds=3, seed=5)
    for name, array in trained.items():  # the scale of observations too: it is not measured again
        np.testing.assert_array_equal(two[name], array)
        np.testing.assert_array_equal(three[name], np.stack([array[0]] * 3))
    config = resolve(Config(**START, init_from=str(tmp_path / "run")))
    assert (config.hidden, config.normalise_observations) == ((4,), "kept")


def test_it_goes_on_from_where_it_ended(tmp_path):
    written(tmp_path / "run", "categorical, scaled", seeds=1)
    export(tmp_path / "run", tmp_path / "export")
    for name, source in (("a", tmp_path / "run"), ("b", tmp_path / "export")):
        fedpg.train(**START, init_from=str(source), out=tmp_path / name)
    a, b, trained = (files.read(tmp_path / name).arrays for name in ("a", "b", "run"))
    assert all(np.array_equal(a[name], b[name]) for name in a)
    assert np.array_equal(a["observation.mean"], trained["observation.mean"])  # kept
    assert not np.array_equal(a["layers.0.matrix"], trained["layers.0.matrix"])
    assert np.abs(a["layers.0.matrix"] - trained["layers.0.matrix"]).max() < 0.5
    again = fedpg.train(out=tmp_path / "a", resume=True, rounds=2)
    assert again.round == 2


def test_what_does_not_fit_is_refused_in_one_line(tmp_path, capsys):
    written(tmp_path / "run", "categorical", hidden=(4,))
    written(tmp_path / "room", "gaussian")
    written(tmp_path / "own", "categorical", personal=True)
    for arguments, message in (
        (["--init-from", str(tmp_path / "room")], "does not fit the actions of cartpole"),
        (["--init-from", str(tmp_path / "run"), "--hidden", "5"], "has other shapes: layers.0.bias is [4], here [5]"),
        (["--init-from", str(tmp_path / "own")], "has its own policy: export one first"),
        (["--init-from", str(tmp_path / "none")], "no run and no policy"),
    ):
        assert main(["train", "--env", "cartpole", "--agents", "2", "--out", str(tmp_path / "new"), *arguments]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert not (tmp_path / "new").exists()
    assert main(["personalize", str(tmp_path / "own")]) == 2
    assert "has its own policy already" in capsys.readouterr().err


@pytest.mark.slow
def test_personalize_trains_both_and_compares(tmp_path, capsys):
    written(tmp_path / "run", "categorical, scaled", seeds=2, local_steps=2, batch=4)
    assert main(["personalize", str(tmp_path / "run"), "--rounds", "2", "--episodes", "3", "--out", str(tmp_path / "out")]) == 0
    assert "gain of personal" in capsys.readouterr().out
    assert fedpg.load(tmp_path / "out" / "personal", agent=1).spec.personal
    rows = {name: json.loads((tmp_path / "out" / name / "metrics.jsonl").read_text().splitlines()[-1]) for name in ("personal", "scratch")}
    assert rows["personal"]["trajectories"] == 2 * 2 * 2 * 4  # rounds, agents, local steps, batch
    assert rows["scratch"]["trajectories"] >= rows["personal"]["trajectories"]  # and one batch each that measures the scale


@pytest.mark.slow
def test_personal_policies_that_got_worse_are_not_kept(tmp_path):
    written(tmp_path / "run", "categorical", hidden=(4,), horizon=60, local_steps=2, batch=4)
    arrays = {name: np.asarray(leaf)[None] for name, leaf in names(balancing(1)).items()}
    files.write(tmp_path / "run", files.read(tmp_path / "run").spec, arrays)
    found = personalize(str(tmp_path / "run"), tmp_path / "out", rounds=1, local_lr=1000.0, episodes=5)
    kept = files.read(tmp_path / "out" / "personal")
    for name, array in arrays.items():
        np.testing.assert_array_equal(kept.arrays[name], np.stack([array, array], axis=1))
    assert found.gain("common").mean == 0.0
    assert kept.spec.returns == (found.scored["common"].mean().mean,)
    assert found.trajectories == 2 * 4 + 2 * 4  # for training and for the choice
    assert found.runs["scratch"].rows[-1]["trajectories"] >= 2 * found.trajectories  # two agents


def test_a_federation_does_not_send_the_path(tmp_path):
    from fedpg.flower.server import Rules
    from fedpg.flower.server_app import check, to_agents

    written(tmp_path / "room", "gaussian, scaled")
    config = Config(env="spaces", env_option={"observation": 2, "action": 1}, algorithm="pavg", init_from=str(tmp_path / "room"))
    sent = to_agents(resolve(config))
    assert str(tmp_path) not in sent
    assert 'normalise-observations = "kept"' in sent
    check(config, Rules())
    with pytest.raises(UserError, match="keep their own params"):
        check(Config(**vars(config) | {"algorithm": "local-only"}), Rules())
    assert ROOM not in sent


@pytest.mark.slow
def test_personal_policies_are_better_on_strongly_different_cartpoles(tmp_path):
    """The gain over the common policy, and over training from scratch on as many trajectories, has an interval above zero."""
    settings = {"env": "cartpole", "algorithm": "pavg", "agents": 5, "heterogeneity": 2.0, "horizon": 200, "rounds": 20, "seeds": 8}
    run = fedpg.train(**settings, eval_every=20, out=tmp_path / "run")
    found = personalize(str(run.folder), tmp_path / "out", rounds=5)
    assert found.gain("common").low > 0
    assert found.gain("scratch").low > 0

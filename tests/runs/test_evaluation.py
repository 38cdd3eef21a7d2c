"""Evaluation: the training agents again, unseen ones against a hand-written loop over Gymnasium, other environments, the matrix."""

from __future__ import annotations

import json

import gymnasium
import jax
import numpy as np
import pytest

import fedpg
from fedpg import UserError, trees
from fedpg.cli import main
from fedpg.envs import tabular
from fedpg.gradients import exact
from fedpg.report.statistics import estimate
from fedpg.runs import evaluation
from helpers.policies import written

SMALL = {"env": "cartpole", "agents": 3, "heterogeneity": 1.0, "rounds": 2, "local_steps": 2, "batch": 8, "horizon": 30, "seeds": 4}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run, and a personal one that was not trained."""
    out = tmp_path_factory.mktemp("runs")
    written(out / "local-only", "categorical", seeds=4, personal=True, agents=2)
    return {"pavg": fedpg.train(**SMALL, algorithm="pavg", out=out / "pavg", eval_episodes=128), "local-only": out / "local-only"}


def test_the_last_evaluation_is_reproduced(runs):
    _reproduced(runs["pavg"], 1)


@pytest.mark.slow
def test_the_last_evaluation_of_personal_policies_is_reproduced(tmp_path):
    _reproduced(fedpg.train(**SMALL, algorithm="local-only", out=tmp_path / "run", eval_episodes=128), 3)


def _reproduced(run, policies):
    trained = evaluation.read(run.folder)
    found = evaluation.evaluate(trained, evaluation.place(trained.spec), episodes=400)
    assert found.returns.shape == (4, policies, 3, 400)
    last = np.array(run.rows[-1]["return_per_seed"])
    # Both are means of episodes with a deviation of about 10: of 3 x 128 in training, of 3 x 400 here.
    np.testing.assert_allclose(found.own().mean((1, 2)), last, atol=5 * 10 / np.sqrt(3 * 128))
    again = estimate(last)
    assert again.low - 1.0 < found.mean().mean < again.high + 1.0
    np.testing.assert_allclose(found.own().mean((0, 2)), run.rows[-1]["return_per_agent"], atol=3.0)


def hand_written(policy, constants, episodes, horizon, seed):
    """Returns of a deterministic policy in Gymnasium's own CartPole with the agent's constants."""
    environment = gymnasium.make("CartPole-v1").unwrapped
    for name in ("gravity", "masscart", "masspole", "length", "force_mag", "tau", "x_threshold"):
        setattr(environment, name, float(getattr(constants, name)))
    environment.theta_threshold_radians = float(constants.theta_threshold)
    environment.total_mass = environment.masspole + environment.masscart
    environment.polemass_length = environment.masspole * environment.length
    width, returns = float(constants.start_range), []
    for episode in range(episodes):
        observation, _ = environment.reset(seed=seed + episode, options={"low": -width, "high": width})
        total, over = 0.0, False
        for _ in range(horizon):
            if not over:
                action, _ = policy.predict(observation)
                observation, reward, over, _, _ = environment.step(int(action))
                total += reward
        returns.append(total)
    return np.array(returns)


def test_unseen_agents_agree_with_a_hand_written_loop_over_gymnasium(tmp_path):
    written(tmp_path, "categorical", horizon=60)
    trained = evaluation.read(tmp_path)
    where = evaluation.place(trained.spec, agents=3, heterogeneity=1.5)
    assert where.count == 3
    seen = evaluation.place(trained.spec)
    assert not np.isin(np.asarray(where.agents.length), np.asarray(seen.agents.length)).all()
    found = evaluation.evaluate(trained, where, episodes=400, how="deterministic").returns[0, 0]
    policy = fedpg.load(tmp_path)
    for n in range(3):
        ours, theirs = found[n], hand_written(policy, trees.take(trees.take(where.agents, 0), n), 150, 60, 1000 * n)
        error = np.sqrt(ours.var() / len(ours) + theirs.var() / len(theirs)) + 0.05
        assert abs(ours.mean() - theirs.mean()) < 4 * error
    assert found.std() > 0.5


def test_a_finite_mdp_gives_its_exact_value(tmp_path):
    problem, params = written(tmp_path, "softmax", horizon=5)
    trained = evaluation.read(tmp_path)
    where = evaluation.place(trained.spec)
    found = evaluation.evaluate(trained, where, episodes=4000).returns[0, 0].mean(1)
    agents = tabular.MDP(*(x[0] for x in where.agents))
    values = [exact.objective(problem.policy, trees.take(params, 0), trees.take(agents, n), 1.0, 5) for n in range(2)]
    np.testing.assert_allclose(found, values, atol=0.06)


def test_the_matrix_holds_every_policy_in_every_environment(runs, tmp_path, capsys):
    folders = [str(runs["local-only"])]
    assert main(["evaluate", *folders, "--episodes", "20", "--matrix", "--json", "--out", str(tmp_path / "out")]) == 0
    found = json.loads(capsys.readouterr().out)
    shapes = {(one["run"], one["how"]): np.shape(one["matrix"]) for one in found["results"]}
    assert shapes == {("local-only", "stochastic"): (2, 2), ("local-only", "deterministic"): (2, 2)}
    own = found["results"][0]
    np.testing.assert_allclose(np.diag(own["matrix"]), own["per_agent"])
    assert own["mean"][1] <= own["mean"][0] <= own["mean"][2]
    assert own["worst_agent"][0] <= own["mean"][0]
    assert list(own["percentiles"]) == ["5", "25", "50", "75", "95"]
    assert (tmp_path / "out" / "matrix.png").stat().st_size > 5000
    folders.append(str(runs["pavg"].folder))  # two runs side by side, personal policies where nobody trained
    assert main(["evaluate", *folders, "--episodes", "5", "--agents", "2"]) == 0
    shown = capsys.readouterr().out
    assert "2 unseen agents of cartpole" in shown
    assert shown.count("local-only") == shown.count("pavg") == 2


def test_other_environments_with_the_same_shapes(runs, capsys):
    run = str(runs["pavg"].folder)
    assert main(["evaluate", run, "--env", "gym:CartPole-v1", "--agents", "1", "--episodes", "3", "--seed", "1", "--json"]) == 0
    (one, _) = json.loads(capsys.readouterr().out)["results"]
    assert one["seeds"] == 1
    for arguments, message in (
        (["--env", "random-mdp"], "the policy has observation space box [4], random-mdp has [5]"),
        (["--env", "swimmer"], "swimmer has [8]: give an environment with the same shapes"),
        (["--episodes", "0"], "episodes must be at least 1"),
        (["--seed", "9"], "has no seed 9"),
        (["--env", "cartpoel"], "did you mean 'cartpole'"),
    ):
        assert main(["evaluate", run, *arguments]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_an_environment_that_fails_is_one_line(tmp_path):
    (tmp_path / "bad.py").write_text(
        "from fedpg.envs import Box\n"
        "class Bad:\n"
        "    observation_space, action_space = Box((2,)), Box((1,), 0.0, 1.0)\n"
        "    def reset(self, *, seed=None): return [0.0, 0.0], {}\n"
        "    def step(self, action): return [0.0, 0.0], float('nan'), False, False, {}\n"
        "def make(**options): return Bad()\n"
    )
    written(tmp_path / "run", "gaussian")
    trained = evaluation.read(tmp_path / "run")
    where = evaluation.place(trained.spec, env=f"{tmp_path / 'bad.py'}:make", agents=1)
    with pytest.raises(UserError, match="failed during evaluation: reward is nan"):
        evaluation.evaluate(trained, where, episodes=2)


def test_every_seed_meets_its_own_agents(runs):
    """Agents are drawn for each seed: a policy is evaluated on those that it was trained on."""
    trained = evaluation.read(runs["pavg"].folder)
    every, one = evaluation.place(trained.spec), evaluation.read(runs["pavg"].folder, seed=2)
    alone = evaluation.place(one.spec)
    assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a[2:3], b), every.agents, alone.agents))

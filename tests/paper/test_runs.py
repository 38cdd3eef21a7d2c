"""Runs of deep tasks: the same engine as training's, what is counted, and what failing seeds are worth."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from fedpg.paper import runs
from fedpg.rounds import Scores
from fedpg.runs import setup
from fedpg.runs.config import Config

TINY = {"rounds": 3, "eval_every": 2, "batch": 2, "u0": "1", "seeds": 2, "eval_episodes": 3}


class Recorder:
    """Takes the place of the simulator and remembers what it was made of."""

    made: list

    def __init__(self, problem, algorithm, agents_of, **more):
        self.made.append({"algorithm": algorithm, **more})


@pytest.mark.parametrize(("env", "algorithm"), [("cartpole", "fedsvrpg-m"), ("halfcheetah", "fedhapg-m"), ("halfcheetah", "fedsvrpg-s")])
def test_the_engine_is_training_s_with_an_axis_of_settings(env, algorithm, monkeypatch):
    seen, engines, factories = [], [], []
    real, factory = setup.policy_gradient, setup.ALGORITHMS[algorithm]
    names = list(inspect.signature(factory).parameters)

    @functools.wraps(factory)
    def recorded(problem, **given):
        factories.append(given)
        return factory(problem, **given)

    monkeypatch.setattr(
        setup, "policy_gradient", lambda environment, policy, **more: (seen.append(more), real(environment, policy, **more))[1]
    )
    monkeypatch.setitem(setup.ALGORITHMS, algorithm, recorded)
    monkeypatch.setattr(Recorder, "made", engines, raising=False)
    monkeypatch.setattr(runs, "Simulator", Recorder)
    monkeypatch.setitem(setup.ENGINES, "simulator", Recorder)
    config = dataclasses.replace(runs.task(env, algorithm, **TINY), beta=0.4, seed=7)
    setup.build(config)
    runs.engine(config, {"beta": [0.4, 0.5]})
    built, swept = engines
    assert built["algorithm"].name == swept["algorithm"]({"beta": 0.4}).name
    assert seen[0] == seen[1]
    assert {k: v for k, v in factories[0].items() if k != "global_lr"} == {k: v for k, v in factories[1].items() if k != "global_lr"}
    assert set(factories[0]) == set(factories[1]) <= set(names)
    assert factories[0]["global_lr"] == factories[0]["local_lr"] * factories[0]["local_steps"]  # what None means in factories[1]
    assert (
        (built["root"], built["seeds"], built["host"] is None)
        == (swept["root"], swept["seeds"], swept["host"] is None)
        == (7, 2, env == "cartpole")
    )
    assert swept["settings"]["beta"].tolist() == pytest.approx([0.4, 0.5])


def test_agents_differ_in_where_they_start_only():
    config = runs.task("cartpole", "fedsvrpg-m", agents=3, **TINY)
    world = runs.worlds.make_world("cartpole", 3, config.heterogeneity, setup.parse_options(config.env_option), "auto")
    agents = world.agents_of(runs.jax.random.key(0))
    differing = {name for name, values in agents._asdict().items() if len(set(np.asarray(values).tolist())) > 1}
    assert differing == {"start_range"}
    assert runs.task("halfcheetah", "fedhapg-m", **TINY).backend == "batch"
    assert runs.shown(config)["batch"] == 2


def test_a_missing_extra_is_named(monkeypatch):
    assert runs.missing("cartpole") is None
    assert runs.missing("walker2d") is None
    ours = {f"fedpg.envs.mujoco.{name}" for name in ("models", "fleet", "batch", "mjx")}
    for name in [name for name in sys.modules if name.split(".")[0] == "mujoco" or name in ours]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    assert runs.missing("walker2d") == "walker2d needs MuJoCo: pip install 'fedpg[mujoco]'"
    assert runs.missing("cartpole") is None


class Scripted:
    """An engine of 2 settings x 2 seeds whose return is the round; every round costs 10 steps, and rows fail when told to."""

    def __init__(self, fails_at):
        self.rows, self.done, self.since, self.fails_at = 4, 0, 0, np.array(fails_at)

    def start(self):
        self.since = 0.5  # the warm-up

    def advance(self, first, count):
        assert first == self.done
        self.done, self.since = self.done + count, self.since + count

    def evaluate(self, round):
        assert round == self.done
        return Scores(np.tile([round, round + 2.0], (4, 1)), None, None, None)

    def state(self):
        count = np.full(4, 10 * self.since)
        usage = SimpleNamespace(env_steps=count, trajectories=count / 5)
        weights = SimpleNamespace(total=np.full(4, 2.0), squares=np.full(4, 4.0), count=np.full(4, 2.0))
        return SimpleNamespace(
            info=SimpleNamespace(usage=usage, weights=weights), failed=np.where(self.done >= self.fails_at, self.fails_at, -1)
        )

    def reset_info(self):
        self.since = 0


def scripted(monkeypatch, fails_at=(99,) * 4, rounds=5, **more):
    monkeypatch.setattr(runs, "engine", lambda config, settings: Scripted(fails_at))
    config = Config(env="cartpole", rounds=rounds, eval_every=2, seeds=2)
    return runs.curves(config, {"beta": [0.2, 1.0]}, **more)


def test_curves_are_evaluated_every_so_many_rounds_and_at_both_ends(monkeypatch):
    shares = []
    first, second = scripted(monkeypatch, tell=shares.append)
    assert first.rounds.tolist() == [0, 2, 4, 5]
    assert first.total_return.tolist() == second.total_return.tolist() == [[1, 3, 5, 6]] * 2
    assert first.env_steps[0].tolist() == [5, 25, 45, 55]  # the warm-up counts
    assert first.trajectories[1].tolist() == [1, 5, 9, 11]
    assert (first.ess == 0.5).all()
    assert shares == [0, 0.4, 0.8, 1]


def test_curves_end_with_their_budget_of_steps(monkeypatch):
    assert scripted(monkeypatch, rounds=100, steps=40)[0].rounds.tolist() == [0, 2, 4]


def test_a_seed_that_failed_counts_the_floor_from_then_on(monkeypatch):
    first, second = scripted(monkeypatch, fails_at=(99, 3, 99, 99))
    assert first.total_return.tolist() == [[1, 3, 5, 6], [1, 3, 0, 0]]
    assert first.failed.tolist() == [False, True]
    assert not second.failed.any()
    # where nobody is left the curve still spans all rounds, so that its height can be compared
    gone = scripted(monkeypatch, fails_at=(1, 2, 1, 1), rounds=9)[1]
    assert gone.rounds.tolist() == [0, 2, 9]
    assert gone.total_return.tolist() == [[1, 0, 0]] * 2


def test_returns_count_at_least_the_floor():
    returns = np.array([[100.0, -1e9], [np.nan, 50.0], [7.0, 7.0]])
    assert runs.worth("halfcheetah", returns, np.array([True, True, False])).tolist() == [-100, -125, -300]

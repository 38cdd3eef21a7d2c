"""`--learner actor-critic` from a configuration to a run: presets, refusals, resume bit for bit."""

from __future__ import annotations

import pytest

from fedpg.envs import families
from fedpg.errors import UserError
from fedpg.runs import config as configs
from fedpg.runs.config import Config
from fedpg.runs.progress import Progress
from fedpg.runs.setup import build, own_parts, resolve
from fedpg.runs.training import train
from helpers.runs import assert_same_run

TINY = {"learner": "actor-critic", "algorithm": "scaffold", "agents": 2, "rounds": 4, "eval_every": 2, "eval_episodes": 1, "hidden": (4,)}
TINY |= {"rollout_steps": 6, "horizon": 9, "learner_option": {"epochs": 1, "minibatch": 6, "critic": [4]}}


@pytest.mark.parametrize("env", [*families.NAMES, "gym:CartPole-v1", "my_module:make"])
def test_a_resolved_configuration_stays_as_it_is(env, tmp_path):
    config = resolve(Config(env=env, learner="actor-critic", algorithm="scaffold"))
    assert resolve(config) == config
    assert config.rollout_steps is not None
    assert config.baseline is None
    (tmp_path / "c.toml").write_text(configs.to_toml(config))
    assert resolve(Config(**configs.read(tmp_path / "c.toml"))) == config


def test_options_add_up_and_wrong_ones_are_refused():
    given = resolve(Config(learner="actor-critic", algorithm="pavg", learner_option={"clip": 0.1})).learner_option
    assert given["clip"] == 0.1
    assert given["gae_lambda"] == 0.95
    wrong = [
        ({"learner": "ppo"}, "unknown learner 'ppo'"),
        ({"learner": "actor-critic", "learner_option": {"epoch": 3}}, "did you mean 'epochs'"),
        ({"learner": "actor-critic", "learner_option": {"epochs": "many"}}, "epochs must be int"),
        ({"learner": "actor-critic", "learner_option": {"clip": 2.0}}, "clip must be between 0 and 1"),
        ({"learner": "actor-critic", "baseline": "time"}, "baseline means nothing to the learner actor-critic"),
        ({"rollout_steps": 5}, "rollout-steps means nothing to the learner reinforce"),
        ({"learner_option": {"clip": 0.1}}, "unknown learner-option of reinforce 'clip'"),
        ({"algorithm": "fedkl", "learner_option": {"time_discount": False}}, "fedkl's objective has the factor"),
        ({"share": "critic"}, "reinforce has no critic to share"),
        ({"personal": "critic"}, "reinforce has no critic"),
        ({"learner": "actor-critic", "share": "critic", "personal": "critic"}, "a critic is shared or personal, not both"),
        ({"learner": "actor-critic", "algorithm": "local-only", "personal": "heads"}, "local-only shares nothing"),
    ]
    for settings, message in wrong:
        with pytest.raises(UserError, match=message):
            resolve(Config(**{"algorithm": "pavg"} | settings))


def test_what_is_shared_and_what_is_personal():
    def parts(**settings):
        return own_parts(resolve(Config(**{"learner": "actor-critic", "algorithm": "pavg"} | settings)))

    assert parts() == parts(personal="critic") == {"critic"}
    assert parts(share="critic") == parts(algorithm="pooled") == frozenset()
    assert parts(share="critic", personal="heads") == {"heads"}
    assert parts(personal="scaling") == {"scaling", "critic"}


def test_algorithms_with_importance_weights_and_attacks_on_trajectories_are_refused():
    with pytest.raises(UserError, match="fedsvrpg-m needs a problem with a weighted gradient"):
        build(resolve(Config(learner="actor-critic", algorithm="fedsvrpg-m")))
    with pytest.raises(UserError, match="attack reward-flip is for --learner reinforce"):
        build(resolve(Config(learner="actor-critic", algorithm="pavg", attack="reward-flip")))


class Killed(Exception):
    """The end of a process."""


class KilledAfterRoundTwo(Progress):
    def advanced(self, round: int) -> None:
        if round >= 3:  # a fast simulator reports several rounds at once
            raise Killed


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"env": "cartpole", "personal": "heads"}, marks=pytest.mark.slow),
        {"env": "hopper", "share": "critic"},
        pytest.param({"env": "gym:CartPole-v1", "batch": 2, "personal": "scaling"}, marks=pytest.mark.slow),
    ],
    ids=["jax", "mujoco", "gymnasium"],
)
def test_resume_goes_on_bit_for_bit(more, tmp_path):
    """The critic, Adam's moments and the environments, half way through their episodes, are restored."""
    whole = train(out=tmp_path / "whole", **TINY | more)
    with pytest.raises(Killed):
        train(out=tmp_path / "half", progress=KilledAfterRoundTwo(), **TINY | more)
    train(out=tmp_path / "half", resume=True)
    assert_same_run(tmp_path / "half", tmp_path / "whole")
    assert whole.rows[-1]["return_deterministic"] is not None

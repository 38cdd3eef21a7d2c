"""A server without an environment knows the shapes of one."""

from __future__ import annotations

import pytest

from fedpg import Config, UserError, train
from fedpg.envs import Box, Discrete, worlds
from fedpg.flower.server import lead
from helpers.sites import Direct, sites_of


@pytest.mark.parametrize(
    ("options", "observations", "actions"),
    [
        ({"observation": 4, "choices": 2}, Box((4,)), Discrete(2)),
        ({"states": 5, "choices": 3}, Discrete(5), Discrete(3)),
        ({"observation": 2, "action": 3}, Box((2,)), Box((3,))),
    ],
)
def test_spaces_are_as_given(options, observations, actions):
    world = worlds.make_world("spaces", 3, 0.0, options, "auto").environment
    assert (world.observation_space, world.action_space) == (observations, actions)


@pytest.mark.parametrize("options", [{}, {"observation": 4}, {"observation": 4, "states": 5, "choices": 2}, {"choices": 2}])
def test_one_kind_of_each_space_is_needed(options):
    with pytest.raises(UserError, match="spaces needs one of"):
        worlds.make_world("spaces", 3, 0.0, options, "auto")


def test_a_server_without_an_environment_leads_agents_that_have_one(tmp_path):
    shared = {
        "algorithm": "pavg",
        "agents": 2,
        "rounds": 2,
        "local_steps": 2,
        "batch": 2,
        "horizon": 6,
        "eval_every": 1,
        "eval_episodes": 2,
    }
    shared |= {"local_lr": 0.05, "discount": 0.95, "baseline": "time", "normalise_observations": "off", "policy": "categorical"}
    known = Config(env="cartpole", **shared)
    blind = Config(env="spaces", env_option=("observation=4", "choices=2"), **shared)
    run = lead(blind, tmp_path / "fed", lambda terms, note: Direct(sites_of(known)))
    expected = train(known, tmp_path / "sim")
    assert [row["return"] for row in run.rows] == pytest.approx([row["return"] for row in expected.rows], rel=1e-5)
    assert run.rows[-1]["env_steps"] == expected.rows[-1]["env_steps"]

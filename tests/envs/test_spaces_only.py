"""The environment that consists of its spaces only."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fedpg import envs
from fedpg.envs import Box, Discrete
from fedpg.errors import UserError


@pytest.mark.parametrize(
    ("options", "observations", "actions"),
    [
        ({"observation": 4, "choices": 2}, Box((4,)), Discrete(2)),
        ({"states": 5, "choices": 3}, Discrete(5), Discrete(3)),
        ({"observation": 2, "action": 3}, Box((2,)), Box((3,))),
    ],
)
def test_spaces_are_as_given(options, observations, actions):
    made = envs.make("spaces", 3, options=options)
    assert (made.environment.observation_space, made.environment.action_space) == (observations, actions)
    agent = made.agents(jax.random.key(0), 0)[0]
    state, first = made.environment.reset(jax.random.key(0), agent)
    after = made.environment.step(jax.random.key(0), state, 0, agent)
    assert first.shape == after.observation.shape == getattr(observations, "shape", ())
    np.testing.assert_array_equal([after.reward, after.terminated, after.truncated], 0)


@pytest.mark.parametrize("options", [{}, {"observation": 4}, {"observation": 4, "states": 5, "choices": 2}, {"choices": 2}])
def test_one_kind_of_each_space_is_needed(options):
    with pytest.raises(UserError, match="spaces needs one of"):
        envs.make("spaces", 3, options=options)

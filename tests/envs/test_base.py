"""Agents that were made one by one become one federation."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs import federate
from fedpg.envs.tabular import MDP, environment
from fedpg.errors import UserError
from helpers.environments import CLOCK, clock


def member(states: int, actions: int) -> tuple:
    mdp = MDP(jnp.full((states, actions, states), 1 / states), jnp.full((states, actions), float(states)), jnp.full(states, 1 / states))
    return environment("mine", states, actions), mdp


def test_federate_stacks_agents() -> None:
    """Agents made one by one become one federation, in the order given."""
    common, mdp = member(3, 2)
    federation = federate([(common, mdp), (common, mdp._replace(reward=mdp.reward + 1)), member(3, 2)])
    assert federation.environment is common
    np.testing.assert_array_equal(federation.agents.reward[:, 0, 0], [3, 4, 3])
    assert federation.agents.transition.shape == (3, 3, 2, 3)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([], "at least one agent"),
        ([member(3, 2), member(3, 2), member(4, 2)], "agent 2 has observation_space Discrete.*n=4.* agent 0 has"),
        ([member(3, 2), member(3, 3)], "agent 1 has action_space"),
        ([(CLOCK, clock(3)), (CLOCK._replace(transition=lambda *a: None), clock(3))], "agent 1 runs other code"),
        ([(CLOCK, clock(3)), (CLOCK, (3.0, False))], "agent 1 runs other code"),
    ],
)
def test_federate_refuses_what_one_policy_cannot_serve(members: list, message: str) -> None:
    with pytest.raises(UserError, match=message):
        federate(members)

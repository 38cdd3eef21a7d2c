"""What a user may type for an environment, and what is said about mistakes; agents made one by one."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs import Discrete, federate, read_options
from fedpg.envs.cartpole import CartPoleOptions
from fedpg.envs.families import family
from fedpg.envs.tabular import MDP, RandomMDPOptions, environment
from fedpg.errors import UserError
from helpers.worlds import CLOCK, clock


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("random-mdp", {}, RandomMDPOptions()),
        ("random-mdp", {"states": 7, "kernel": "orthogonal", "sparsity": 1}, RandomMDPOptions(7, 5, "orthogonal", 1.0)),
        ("random-mdp", {"states": "7", "sparsity": "0.25"}, RandomMDPOptions(states=7, sparsity=0.25)),
        ("random-mdp", {"states": [6, 6]}, RandomMDPOptions(states=6)),
        ("cartpole", {"length": [0.5, 1], "gravity": 3}, CartPoleOptions(length=(0.5, 1.0), gravity=3.0)),
    ],
)
def test_options_are_read_and_converted(name: str, given: dict, expected: object) -> None:
    options = read_options(name, family(name).options, given)
    assert options == expected
    assert type(getattr(options, "states", 1)) is int


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("random-mdpp", {}, "unknown env 'random-mdpp': did you mean 'random-mdp'"),
        ("cartpole", {"lenght": 1.0}, "unknown option of cartpole 'lenght': did you mean 'length'"),
        ("random-mdp", {"states": "many"}, "states of random-mdp must be a number, not 'many'"),
        ("random-mdp", {"states": 2.5}, "states of random-mdp must be a whole number"),
        ("random-mdp", {"actions": 0}, "actions of random-mdp must be a whole number of at least 1"),
        ("random-mdp", {"states": float("inf")}, "states of random-mdp must be"),
        ("random-mdp", {"sparsity": None}, "sparsity of random-mdp must be a number"),
        ("cartpole", {"gravity": [9.8, "heavy"]}, "gravity of cartpole must be a number"),
        ("random-mdp", {"states": [5, 6]}, "states differs between agents"),
        ("random-mdp", {"states": [[5], [5]]}, "states"),
    ],
)
def test_mistakes_are_user_errors(name: str, given: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_options(name, family(name).options, given)


def test_families_have_the_spaces_of_their_options() -> None:
    made = family("conflict").environment(read_options("conflict", family("conflict").options, {"states": 3, "actions": 4}))
    assert (made.observation_space, made.action_space) == (Discrete(3), Discrete(4))


def member(states: int, actions: int) -> tuple:
    mdp = MDP(jnp.full((states, actions, states), 1 / states), jnp.full((states, actions), float(states)), jnp.full(states, 1 / states))
    return environment("mine", states, actions), mdp


def test_federate_stacks_agents() -> None:
    """Agents made one by one become one federation, in the order given."""
    world, mdp = member(3, 2)
    federation = federate([(world, mdp), (world, mdp._replace(reward=mdp.reward + 1)), member(3, 2)])
    assert federation.environment is world
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

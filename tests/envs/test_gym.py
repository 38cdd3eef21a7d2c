"""`--env gym:ID` against Gymnasium itself, step by step, and what is said when something is missing."""

from __future__ import annotations

import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg.envs import Box, Discrete
from fedpg.envs.gym import federation
from fedpg.envs.host import Member
from fedpg.errors import UserError
from helpers.host_envs import lanes


def random_actions(space, steps: int, count: int) -> np.ndarray:
    """Of the policy; boxes also beyond their bounds."""
    random = np.random.default_rng(3)
    if isinstance(space, Discrete):
        return random.integers(space.n, size=(steps, count, 1)).astype(np.float32)
    return random.normal(size=(steps, count, *space.shape)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "kwargs", "spaces_seen", "to_environment"),
    [
        ("LunarLander-v3", {"gravity": -8.0}, (Box((8,)), Discrete(4)), lambda a: np.int64(a[0])),
        ("LunarLander-v3", {"continuous": True}, (Box((8,)), Box((2,), -1.0, 1.0)), lambda a: np.clip(a, -1, 1)),
        ("Pendulum-v1", {"g": 5.0}, (Box((3,)), Box((1,), -1.0, 1.0)), lambda a: np.clip(2 * a, -2, 2)),
        ("CartPole-v1", {}, (Box((4,)), Discrete(2)), lambda a: np.int64(a[0])),
        ("FrozenLake-v1", {"map_name": "4x4"}, (Discrete(16), Discrete(4)), lambda a: np.int64(a[0])),
    ],
)
def test_steps_are_those_of_a_plain_loop(name, kwargs, spaces_seen, to_environment):
    """Same seeds, same actions, in fresh environments and in those that have been used."""
    made = federation(f"gym:{name}", 2, kwargs)
    assert (made.environment.observation_space, made.environment.action_space) == spaces_seen
    actions = random_actions(made.environment.action_space, 130, 3)
    for seeds in ([5, 6, 2**32 - 1], [8, 6, 5]):
        session = made.environment.host.reset(*lanes(0, 1, 0, seeds=seeds))
        plain = [gymnasium.make(name, **kwargs) for _ in seeds]
        first = [environment.reset(seed=seed)[0] for environment, seed in zip(plain, seeds, strict=True)]
        np.testing.assert_array_equal(session.observation, first)
        alive = [True] * 3
        for action in actions:
            after = session.step(action)
            for lane in np.flatnonzero(alive):
                observation, reward, terminated, truncated, _ = plain[lane].step(to_environment(action[lane]))
                np.testing.assert_array_equal(after.observation[lane], observation)
                assert after.reward[lane] == np.float32(reward)
                assert (after.terminated[lane], after.truncated[lane]) == (terminated, truncated)
                alive[lane] = not (terminated or truncated)
        session.close()
    assert made.environment.host.events == []


def test_agents_have_their_own_options_and_every_seed_its_own_index():
    made = federation("gym:Pendulum-v1", 2, {"g": [0.0, 10.0]})
    assert made.agents.index.tolist() == [0, 1]
    member = made.prepare(Member(np.array([[0, 1]] * 3)))
    np.testing.assert_array_equal(member.index, [[0, 1], [2, 3], [4, 5]])
    start = jax.vmap(made.environment.start, (0, None))(jax.random.split(jax.random.key(0), 6), ())
    assert (start.shape, start.dtype) == ((6, 1), jnp.uint32)
    assert len(np.unique(start)) == 6
    session = made.environment.host.reset(member.index.ravel(), np.full((6, 1), 7, np.uint32))
    after = session.step(np.zeros((6, 1))).observation
    np.testing.assert_array_equal(after[::2], after[[0, 0, 0]])
    assert (after[0] != after[1]).any()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gym:CartPoll-v1", {}, "gym:CartPoll-v1: .*doesn't exist. Did you mean: `CartPole`"),
        ("gym:CartPole-v99", {}, "gym:CartPole-v99: .*v99"),
        ("gym:nowhere:X-v0", {}, "gym:nowhere:X-v0: No module named 'nowhere'"),
        ("gym:CartPole-v1", {"lenght": 1.0}, "gym:CartPole-v1: .*unexpected keyword argument 'lenght'"),
        ("gym:Pendulum-v1", {"g": [1.0, 2.0, 3.0]}, "g lists 3 values for 2 agents"),
        ("gym:Blackjack-v1", {}, "gym:Blackjack-v1: its observation space Tuple.*FlattenObservation"),
        ("gym:FrozenLake-v1", {"map_name": ["4x4", "8x8"]}, r"agent 1 has observation_space Discrete\(64\), agent 0 has Discrete\(16\)"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_cannot_be_made_is_reported_in_one_line(name, options, message):
    with pytest.raises(UserError, match=message) as error:
        federation(name, 2, options)
    assert "\n" not in str(error.value)


def test_without_gymnasium_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(UserError, match=r"^gym:LunarLander-v3 needs Gymnasium: pip install 'fedpg\[gym\]'$"):
        federation("gym:LunarLander-v3", 2, {})


def test_what_an_environment_needs_is_reported_as_by_gymnasium(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(UserError, match=r"^gym:LunarLander-v3: Box2D is not installed.*pip install .*gymnasium\[box2d\]"):
        federation("gym:LunarLander-v3", 2, {})


def test_attributes_of_the_environment_itself_can_be_given_per_agent():
    lengths = {"unwrapped.LINK_LENGTH_1": [0.5, 2.0]}
    host = federation("gym:Acrobot-v1", 2, lengths).environment.host
    assert [host.take(i).unwrapped.LINK_LENGTH_1 for i in range(2)] == [0.5, 2.0]
    with pytest.raises(UserError, match="has no attribute LENGTH"):
        federation("gym:Acrobot-v1", 2, {"unwrapped.LENGTH": 1.0})

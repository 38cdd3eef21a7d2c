"""Gymnasium's native vector environments: the episodes of the single ones, many lanes at a time."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from fedpg.envs.gym import federation
from helpers.host_envs import lanes

spaces = gymnasium.spaces


def test_native_vector_cartpole_has_the_dynamics_of_the_single_one():
    """From each start that the vector environment draws, a plain CartPole gives the same episode, up to its end."""
    made = federation("gym:CartPole-v1", 2, {"max_episode_steps": 30})
    index, start = lanes(*[0] * 40, *[1] * 40)
    session = made.environment.host.reset(index, start)
    assert [len(part.lanes) for part in session._parts] == [40, 40]
    plain = [gymnasium.make("CartPole-v1", max_episode_steps=30) for _ in index]
    for environment, state in zip(plain, session.observation, strict=True):
        environment.reset(seed=0)
        environment.unwrapped.state = state.astype(float)
    alive = np.ones(len(index), bool)
    ends = [0, 0]
    for action in np.random.default_rng(3).integers(2, size=(40, len(index), 1)):
        after = session.step(action)
        np.testing.assert_array_equal(after.reward, np.where(alive, 1, 0))
        for lane in np.flatnonzero(alive):
            observation, _, terminated, truncated, _ = plain[lane].step(int(action[lane, 0]))
            np.testing.assert_allclose(after.observation[lane], observation, atol=1e-5)
            assert (after.terminated[lane], after.truncated[lane]) == (terminated, truncated)
            alive[lane] = not (terminated or truncated)
            ends = [ends[0] + terminated, ends[1] + truncated]
    assert min(ends) > 3
    assert not alive.any()


def test_one_agents_lanes_do_not_depend_on_those_beside_them():
    """Neither other agents and seeds, nor copies of itself, which fill up an engine's last chunk."""

    def episode(*indices: int) -> np.ndarray:
        host = federation("gym:CartPole-v1", 3, {}).environment.host
        index, start = lanes(*np.repeat(indices, 9), seeds=[10 * i + lane for i in indices for lane in range(9)])
        session = host.reset(index, start)
        return np.stack([session.step(np.ones((len(index), 1))).observation[-9:] for _ in range(15)])

    for beside in ((0, 1), (5,), (2,), (2, 5, 2, 2)):
        np.testing.assert_array_equal(episode(*beside, 2), episode(2))


class Countdown(gymnasium.vector.VectorEnv):
    """Lane l ends after l + 1 steps and is reset in that same step; lane 1 is broken from the start if `breaks`."""

    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs=1, max_episode_steps=None, breaks=False):
        self.num_envs, self.breaks = num_envs, breaks
        self.single_observation_space, self.single_action_space = spaces.Box(-9, 9, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.now = np.zeros(self.num_envs)
        return self.now[:, None].copy(), {}

    def step(self, action):
        self.now += 1
        last, ended = self.now[:, None].copy(), self.now > np.arange(self.num_envs)
        self.now[ended] = 0
        reward = np.where((np.arange(self.num_envs) == 1) & self.breaks, np.nan, 1.0)
        return self.now[:, None].copy(), reward, ended, np.zeros_like(ended), {"final_obs": list(last), "_final_obs": ended}


class OneCountdown(gymnasium.Env):
    observation_space, action_space = spaces.Box(-9, 9, (1,)), spaces.Discrete(2)

    def __init__(self, breaks=False, only_here=0):
        pass


@pytest.fixture
def countdown():
    gymnasium.register("Countdown-v0", entry_point=OneCountdown, vector_entry_point=Countdown)
    yield "gym:Countdown-v0"
    del gymnasium.registry["Countdown-v0"]


def test_a_vector_environment_that_resets_at_once_still_shows_the_last_observation(countdown):
    session = federation(countdown, 1, {}).environment.host.reset(*lanes(*[0] * 8))
    for step in range(1, 10):
        after = session.step(np.zeros((8, 1)))
        np.testing.assert_array_equal(after.observation[:, 0], np.minimum(step, np.arange(8) + 1))
        np.testing.assert_array_equal(after.reward, np.arange(8) + 1 >= step)


def test_a_lane_that_fails_in_a_vector_environment_leaves_the_others_alone(countdown):
    host = federation(countdown, 1, {"breaks": True}).environment.host
    session = host.reset(*lanes(*[0] * 8))
    first = session._parts[0].environment
    np.testing.assert_array_equal(session.step(np.zeros((8, 1))).reward, [1, np.nan, *[1] * 6])
    after = session.step(np.zeros((8, 1)))
    np.testing.assert_array_equal(after.reward, [0, 0, *[1] * 6])
    assert after.observation[:, 0].tolist() == [1, 0, *[2] * 6]
    assert [event.what for event in host.events] == ["reward is nan"]
    session.close()
    assert host.reset(*lanes(*[0] * 8))._parts[0].environment is not first


@pytest.mark.parametrize("why", ["options", "mode"])
def test_single_environments_serve_where_a_vector_one_cannot(countdown, why, monkeypatch):
    if why == "mode":
        monkeypatch.setattr(Countdown, "metadata", {"autoreset_mode": gymnasium.vector.AutoresetMode.DISABLED})
    made = federation(countdown, 2, {"only_here": 1} if why == "options" else {})
    assert len(made.environment.host.reset(*lanes(*[0] * 8))._parts) == 8

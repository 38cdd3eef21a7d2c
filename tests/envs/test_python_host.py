"""Lanes in Python environments: seeds, ends, every kind of failure, and environments that are kept and thrown away."""

from __future__ import annotations

import numpy as np
import pytest

from fedpg.envs.host import Event
from helpers.host_envs import FAILURES, Recorder, Scripted, lanes


def go(session, steps: int, action: float = 1.0) -> list:
    """Every step of a session, with the same action in every lane."""
    count = len(session.observation)
    return [session.step(np.full((count, 1), action, np.float32)) for _ in range(steps)]


def test_lanes_start_from_their_seeds_and_stand_still_after_their_end():
    recorder = Recorder({"end": 2}, {"end": 3, "truncates": True})
    session = recorder.host.reset(*lanes(1, 0, 1, seeds=[7, 2**32 - 1, 9]))
    np.testing.assert_array_equal(session.observation[:, 0], np.array([7, 2**32 - 1, 9], np.float32))
    assert recorder.seeds(0) == [2**32 - 1]
    assert recorder.seeds(1) == [7, 9]
    first, second, third, fourth = go(session, 4)
    np.testing.assert_array_equal(first.reward, [11, 11, 11])
    assert not (first.terminated | first.truncated).any()
    np.testing.assert_array_equal(second.terminated, [False, True, False])
    np.testing.assert_array_equal(third.reward, [13, 0, 13])
    np.testing.assert_array_equal(third.truncated, [True, False, True])
    np.testing.assert_array_equal(third.terminated, [False, True, False])
    np.testing.assert_array_equal(fourth.reward, 0)
    np.testing.assert_array_equal(fourth.observation, third.observation)
    np.testing.assert_array_equal(fourth.observation[:, 1], [3, 2, 3])
    assert (fourth.observation.dtype, fourth.reward.dtype, fourth.terminated.dtype) == (np.float32, np.float32, bool)
    assert recorder.host.events == []


def test_environments_are_kept_for_the_next_session():
    recorder = Recorder({})
    for seed in range(3):
        session = recorder.host.reset(*lanes(0, 0, seeds=[seed, 10 + seed]))
        go(session, 2)
        session.close()
        session.close()
    assert len(recorder.made[0]) == 2
    assert recorder.seeds(0) == [0, 1, 2, 10, 11, 12]


def test_sessions_open_at_the_same_time_share_nothing():
    recorder = Recorder({})
    one, two = recorder.host.reset(*lanes(0, seeds=[1])), recorder.host.reset(*lanes(0, seeds=[2]))
    go(one, 2)
    assert go(two, 1)[0].observation.tolist() == [[2, 1]]
    assert go(one, 1)[0].observation.tolist() == [[1, 3]]
    one.close()
    assert recorder.host.reset(*lanes(0, seeds=[3])).observation.tolist() == [[3, 0]]
    assert go(two, 1)[0].observation.tolist() == [[2, 2]]
    assert len(recorder.made[0]) == 2


def test_an_index_beyond_the_agents_is_another_seed_of_the_same_agent():
    recorder = Recorder({"end": 1}, {"end": 2})
    recorder.host.make_ready(seeds=3)
    assert [len(made) for made in recorder.made] == [3, 3]
    session = recorder.host.reset(*lanes(0, 1, 2, 3, 4, 5))
    np.testing.assert_array_equal(go(session, 1)[0].terminated, [True, False] * 3)
    assert [len(made) for made in recorder.made] == [3, 3]


@pytest.mark.parametrize("kind", [*FAILURES, "raise"])
def test_a_failure_ends_its_lane_only_and_is_reported_once(kind):
    """Of three lanes of the agent that fails, two do (their seeds are even); they are reported as one."""
    recorder = Recorder({}, {"fail": kind, "when": lambda seed: seed % 2 == 0})
    session = recorder.host.reset(*lanes(1, 0, 1, 1, seeds=[4, 4, 5, 6]))
    steps = go(session, 4)
    np.testing.assert_array_equal(steps[0].reward, 11)
    np.testing.assert_array_equal(steps[1].reward, [np.nan, 12, 12, np.nan])
    np.testing.assert_array_equal(steps[1].terminated, [True, False, False, True])
    np.testing.assert_array_equal(steps[1].observation, [[4, 1], [4, 2], [5, 2], [6, 1]])
    np.testing.assert_array_equal(steps[3].reward, [0, 14, 14, 0])
    said = FAILURES[kind][1] if kind in FAILURES else "step raised ValueError: boom"
    assert recorder.host.events == [Event(1, said)]


@pytest.mark.parametrize(
    ("kind", "said"),
    [("raise in reset", "reset raised OSError: no such device"), ("shape in reset", "observation has shape (3,), not (2,)")],
)
def test_a_reset_that_fails_starts_from_zeros_and_ends_at_the_first_step(kind, said):
    recorder = Recorder({"fail": kind, "when": lambda seed: seed == 100})
    session = recorder.host.reset(*lanes(0, 0))
    np.testing.assert_array_equal(session.observation, [[0, 0], [101, 0]])
    first, second = go(session, 2)
    np.testing.assert_array_equal(first.reward, [np.nan, 11])
    np.testing.assert_array_equal(first.terminated, [True, False])
    np.testing.assert_array_equal(second.reward, [0, 12])
    assert recorder.host.events == [Event(0, said)]


def test_after_a_failure_the_next_round_gets_a_fresh_environment():
    recorder = Recorder({"fail": "raise", "when": lambda seed: seed == 100})
    session = recorder.host.reset(*lanes(0, 0))
    go(session, 3)
    session.close()
    broken = [environment for environment in recorder.made[0] if 100 in environment.seeds]
    assert [environment.closed for environment in recorder.made[0]] == [environment in broken for environment in recorder.made[0]]
    session = recorder.host.reset(*lanes(0, 0, seeds=[200, 201]))
    np.testing.assert_array_equal(go(session, 2)[1].reward, 12)
    assert len(recorder.made[0]) == 3
    assert len(recorder.host.events) == 1


def test_an_environment_that_cannot_be_made_again_is_a_failure_of_its_agent():
    class Once(Scripted):
        made = 0

        def __init__(self):
            Once.made += 1
            if Once.made > 1:
                raise ConnectionError("the simulator is gone")
            super().__init__()

    recorder = Recorder({}, environment=Once)
    session = recorder.host.reset(*lanes(0, 0))
    np.testing.assert_array_equal(go(session, 1)[0].reward, [11, np.nan])
    session.close()
    assert recorder.host.events == [Event(0, "it cannot be made: ConnectionError: the simulator is gone")]


def test_an_action_that_is_not_finite_ends_its_lane_silently():
    recorder = Recorder({})
    session = recorder.host.reset(*lanes(0, 0))
    after = session.step(np.array([[np.nan], [2.0]]))
    np.testing.assert_array_equal(after.reward, [np.nan, 21])
    np.testing.assert_array_equal(after.terminated, [True, False])
    np.testing.assert_array_equal(after.observation, [[100, 0], [101, 1]])
    np.testing.assert_array_equal(session.step(np.array([[1.0], [1.0]])).reward, [0, 12])
    session.close()
    assert recorder.host.events == []
    assert sorted(environment.now for environment in recorder.made[0]) == [0, 2]
    assert not any(environment.closed for environment in recorder.made[0])


def test_ctrl_c_is_no_failure():
    session = Recorder({"fail": "interrupt"}).host.reset(*lanes(0))
    go(session, 1)
    with pytest.raises(KeyboardInterrupt):
        go(session, 1)


def test_double_precision_is_kept(float64):
    session = Recorder({}).host.reset(*lanes(0, seeds=[2**31 + 1]))
    assert session.observation.dtype == np.float64
    assert session.observation[0, 0] == 2**31 + 1

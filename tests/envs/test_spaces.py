"""Between an environment's spaces and the policy's: scaling, starts, dtypes, and what has no place."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

from fedpg.envs import Box
from fedpg.envs.spaces import stack, view
from fedpg.errors import UserError


@pytest.mark.parametrize(
    ("space", "policy_says", "environment_gets"),
    [
        (spaces.Discrete(3, start=5), [0, 2], np.array([5, 7])),
        (SimpleNamespace(n=4), [3], np.array([3])),
        (spaces.Box(0, 10, (2,)), [[-1, 1], [0, 3]], np.array([[0, 10], [5, 10]], np.float32)),
        (spaces.Box(np.array([0, -np.inf]), np.array([4, 1]), dtype=np.float64), [[0.5, 0.5], [-9, 9]], np.array([[3, 0.5], [0, 1]])),
        (spaces.Box(0, 255, (1,), np.uint8), [[1.0], [-1.2], [0.01]], np.array([[255], [0], [129]], np.uint8)),
        (spaces.Box(-np.inf, np.inf, (1,), np.int64), [[7.4]], np.array([[7]])),
        (Box((), 0.0, 2.0), [0.5], np.array([1.5], np.float32)),
    ],
)
def test_actions_are_scaled_clipped_and_cast(space, policy_says, environment_gets):
    rows = stack([view(space, "action", "x")]).rows(np.zeros(len(policy_says), int))
    got = rows.to_environment(np.array(policy_says, float))
    np.testing.assert_array_equal(got, environment_gets)
    assert got.dtype == environment_gets.dtype


def test_discrete_observations_count_from_zero():
    rows = stack([view(spaces.Discrete(3, start=-1), "observation", "x")]).rows(np.zeros(5, int))
    value, good = rows.to_policy(np.array([-1, 1, 2, np.nan, 0.5]), np.dtype(np.int32))
    assert value.tolist() == [0, 2, 0, 0, 0]
    assert good.tolist() == [True, True, False, False, False]


@pytest.mark.parametrize(
    "space", [spaces.Dict(a=spaces.Discrete(2)), spaces.Tuple([]), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(4), spaces.Text(5)]
)
def test_other_spaces_are_refused(space):
    with pytest.raises(UserError, match=f"^gym:X: its observation space {type(space).__name__}.* neither Discrete nor Box: wrap .*Flatten"):
        view(space, "observation", "gym:X")
